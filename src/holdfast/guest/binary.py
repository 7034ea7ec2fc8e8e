"""Finds the guest for this machine, builds it in a source tree that changed, and verifies it."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

from ..errors import GuestMissing
from . import build

_BIN = Path(__file__).parent / "bin"
_SOURCE = Path(__file__).parents[2] / "guest"

_ARCH_OF_MACHINE = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def host_arch() -> str:
    """This machine's architecture, in Go's words."""
    machine = platform.machine().lower()
    if machine not in _ARCH_OF_MACHINE:
        raise GuestMissing(f"there is no guest for {machine}; it is built for amd64 and arm64")
    return _ARCH_OF_MACHINE[machine]


@functools.cache
def guest_path(arch: str | None = None) -> Path:
    """The guest program for `arch` (this machine's by default), verified.

    Raises:
        GuestMissing: it is not there, cannot be built, or is not the one that was shipped.
    """
    path = _BIN / build.binary_name(arch or host_arch())
    if _sources_are_newer(path):
        try:
            build.build_all(_SOURCE, _BIN)
        except build.GuestBuildError as error:
            raise GuestMissing(str(error)) from error
        path.touch()
    if not path.is_file():
        raise GuestMissing(f"{path} is missing; reinstall holdfast")
    _verify(path)
    return path


def _sources_are_newer(path: Path) -> bool:
    """True in a source tree (or an editable install) whose Go files changed after the build."""
    if not (_SOURCE / "go.mod").is_file():
        return False
    if not path.is_file():
        return True
    built = path.stat().st_mtime
    return any(source.stat().st_mtime > built for source in build.sources(_SOURCE))


def _verify(path: Path) -> None:
    shipped = {name: digest for digest, name in (line.split() for line in (_BIN / build.SUMS).open())}
    if hashlib.sha256(path.read_bytes()).hexdigest() != shipped.get(path.name):
        raise GuestMissing(f"{path} is not the guest that this version of holdfast shipped; reinstall holdfast")

"""Finds the guest for this machine, builds it in a source tree that changed, and verifies it."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import secrets
import subprocess
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


def sealed(program: Path, folder: Path) -> Path:
    """A copy of the guest in `folder` that can be executed and not read; made once.

    The kernel closes a process to other programs of its user, from its first instruction on, if they may not read what
    it executes: no /proc/PID/mem, no /proc/PID/fd. The guest closes itself too, but only a millisecond later, and a
    tenant that is quick enough could take over a supervisor which has no filter yet.

    Raises:
        GuestMissing: there is no place for it.
    """
    told = program.stat()
    name = f"guest-{told.st_mtime_ns:x}-{told.st_size:x}"
    for place in (folder, Path(__file__).parent / "__pycache__"):  # /run allows no programs on some systems
        copy = place / name
        if copy.exists():
            return copy
        try:
            place.mkdir(exist_ok=True)
            if os.statvfs(place).f_flag & os.ST_NOEXEC:
                continue
            part = place / f"{name}.{secrets.token_hex(4)}"
            # By another process: a fork of a thread of ours would inherit the open file, and what somebody may still
            # write to cannot be executed (ETXTBSY).
            subprocess.run(["install", "-m", "0111", program, part], check=True, capture_output=True)
            part.replace(copy)
        except (OSError, subprocess.CalledProcessError):
            continue
        return copy
    raise GuestMissing(f"the guest can be put nowhere: {folder} is full, read-only or closed to programs")


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

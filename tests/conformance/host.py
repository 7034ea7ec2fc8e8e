"""What a sandbox left on this machine, judged from outside: /proc, cgroups, folders, and the engine's own list."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import anyio

from holdfast.abc import Engine

_PATIENCE = 5.0


def processes(mark: str) -> list[str]:
    """The living processes that carry `mark` in their environment or in their command line."""
    wanted, found = mark.encode(), list[str]()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or folder.name == str(os.getpid()):
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            carries = wanted in command or wanted in (folder / "environ").read_bytes()
        except OSError:  # it ended, or is a zombie, or is not ours to look at
            continue
        if carries:
            found.append(f"{folder.name} {command.replace(bytes(1), b' ')[:60].decode(errors='replace')}")
    return found


def programs(mark: str) -> list[str]:
    """Of those, the programs of tenants: the guest and what started it have the mark in their command line only."""
    return [one for one in processes(mark) if _is_tenant(int(one.split()[0]), mark)]


def _is_tenant(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


async def gone(mark: str) -> list[str]:
    """The programs that are still there after a grace of a second; a kill is over when its call returns."""
    until = time.monotonic() + 1
    while (left := programs(mark)) and time.monotonic() < until:
        await anyio.sleep(0.02)
    return left


def cgroups(names: Iterable[str]) -> list[str]:
    found = [
        folder / name
        for name in names
        for folder in (*Path("/sys/fs/cgroup").glob("*/holdfast"), Path("/sys/fs/cgroup/holdfast"))
    ]
    return [str(path) for path in found if path.exists()]


def folders(state: Path) -> list[str]:
    return [str(path) for path in (state / "sessions").glob("*")]


def left(engine: Engine, names: Iterable[str], mark: str, state: Path) -> list[str]:
    """Everything that is still there of some sandboxes, after a few seconds."""
    until = time.monotonic() + _PATIENCE
    while True:
        records = [record.name for record in anyio.run(engine.list) if record.name in names]
        found = [*records, *processes(mark), *processes(str(state)), *cgroups(names), *folders(state)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)

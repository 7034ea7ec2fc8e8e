"""What a sandbox left on this machine, judged from outside: /proc, cgroups, folders, and the engine's own list."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
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


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Wait for something that has to happen; how long it takes is not what is tested."""
    with anyio.fail_after(seconds):
        while not await condition():
            await anyio.sleep(0.02)


async def gone(mark: str) -> list[str]:
    """The programs that are still there a second after a kill: the kernel may take a moment to bury the dead."""

    async def none() -> bool:
        return not programs(mark)

    with suppress(TimeoutError):
        await until(none, seconds=1)
    return programs(mark)


def cgroups(names: Iterable[str]) -> list[str]:
    # the engine appends a hash of its state folder to the name
    return [
        str(path)
        for name in names
        for where in ("*/holdfast", "holdfast")
        for path in Path("/sys/fs/cgroup").glob(f"{where}/{name}*")
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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

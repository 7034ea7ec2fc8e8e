"""What the host sees of a sandbox: by /proc, cgroups and the daemon, never by what the sandbox says of itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import Limits, aio
from holdfast.aio import Process, Session
from tests.faults.outside import outside


@dataclass(frozen=True)
class Seen:
    """One process, as the host sees it."""

    pid: int
    parent: int
    state: str
    command: str

    @property
    def ours(self) -> bool:
        """The guest or a supervisor."""
        return self.command.startswith(("guest\0supervise\0", "/.holdfast/guest\0"))


def look_at(pid: int) -> Seen | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (OSError, IndexError):
        return None
    return Seen(pid, int(fields[1]), fields[0], command)


def beneath(root: int) -> list[Seen]:
    """All living processes below a process."""
    children: dict[int, list[Seen]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (seen := look_at(int(entry.name))):
            children.setdefault(seen.parent, []).append(seen)
    found: list[Seen] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), []):
            queue.append(child.pid)
            if child.state not in "ZX":
                found.append(child)
    return found


class Box:
    """A session and the host's view of it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.exec = session.exec
        self.outside = outside(session)
        self.pid, self.cgroups = self.outside.pid, self.outside.cgroups
        standard = session.effective.profile == "standard"
        self.uid, self.home = (0, "/root") if standard else (65532, "/home/sandbox")

    def path(self, name: str) -> Path:
        """A file of the sandbox, as the host sees it: through the root folder of its PID 1."""
        return Path(f"/proc/{self.pid}/root/{name}")

    def programs(self) -> list[Seen]:
        """Living processes of programs: all but the guest and its supervisors."""
        return [seen for seen in beneath(self.pid) if not seen.ours]

    def supervisors(self) -> list[Seen]:
        return [seen for seen in beneath(self.pid) if seen.ours]

    def running(self, marker: str) -> list[Seen]:
        return [seen for seen in self.programs() if marker in seen.command]

    def left_nothing(self) -> None:
        seen = look_at(self.pid)
        assert seen is None or seen.state in "ZX"
        assert not self.outside.left()

    async def until(self, condition: Callable[[], Any], what: str, within: float = 15) -> None:
        """Wait for something that the host can see."""
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, f"not within {within} s: {what}; there are {self.programs()}"
            await anyio.sleep(0.02)

    async def empty(self, within: float = 5) -> None:
        await self.until(lambda: not self.programs(), "no program is left", within)

    async def said(self, process: Process, what: bytes, count: int = 1) -> None:
        """Wait until a started program has written something."""
        with anyio.fail_after(20):
            while (await process.read()).stdout.count(what) < count:
                await anyio.sleep(0.02)

    async def works(self) -> None:
        """The session is usable."""
        with anyio.fail_after(30):
            result = await self.exec(["echo", "fine"])
        assert (result.stdout, result.ok) == ("fine\n", True), result.as_tool()


@asynccontextmanager
async def box(**options: Any) -> AsyncIterator[Box]:
    """A session on the engine of the test; when the block is left, nothing is left of it."""
    async with aio.open_session(**options) as session:
        opened = Box(session)
        yield opened
    if session.key.namespace == "private":
        opened.left_nothing()


def every() -> pytest.MarkDecorator:
    """On each engine, in each profile: where a profile changes the outcome, or must not."""
    return pytest.mark.on("local", "docker", "docker-strict")


def confined() -> pytest.MarkDecorator:
    """Where programs are nobody: `standard` gives them the root of their container."""
    return pytest.mark.on("local", "docker-strict")


def small(**changes: Any) -> Limits:
    """Limits that a test reaches quickly."""
    return Limits(**{"memory_mb": 64, "processes": 64, "workspace_mb": 16, "max_files": 2000, **changes})


def resident_kb() -> int:
    """The memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])

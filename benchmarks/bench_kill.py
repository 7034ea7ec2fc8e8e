"""How long after its timeout is the last process of a program gone?

The program leaves children behind, one of them a daemon in a session of its own. What is left is looked for from the
host, by a word in its command line, every few milliseconds, for five seconds: whoever left something running
until then is said to.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
from _measure import Contest, NotHere, Row, Took, chosen_engines, main, quick
from _peers import Driver, peers

from holdfast import aio

TIMEOUT = 1


def give_up() -> float:
    return 1.0 if quick() else 5.0


def line(marker: str) -> str:
    """A child, a daemon, and the program itself; `sleep` adds its arguments, so a marker of seconds is one."""
    return f"sleep {marker} & setsid sleep {marker} & sleep {marker}"


async def measure(rounds: int) -> list[Row]:
    contest = Contest("timeout over, until the last of its processes is gone", warm_up=())
    for engine in chosen_engines():
        contest.ours(f"holdfast, {engine}", partial(_ours, engine), goal="50 ms")
    survivors: dict[str, int] = {}
    async with peers("limited", timeout=TIMEOUT) as found:
        for peer in found:
            contest.peer(peer.name, partial(_peer, peer, survivors))
        rows = await contest.in_turns(rounds, 90)
    for row in rows:
        if survivors.get(row.name):
            row.note = f"{survivors[row.name]} of 3 left running"
    return rows


async def _ours(engine: str) -> Took:
    async with aio.open_session(engine=engine) as box:
        await box.exec(["true"])

        async def run(marker: str) -> None:
            result = await box.exec(line(marker), timeout=TIMEOUT)
            assert result.end_cause == "timeout", result

        took, left = await _until_gone(run)
        assert not left
        return took


async def _peer(peer: Driver, survivors: dict[str, int]) -> Took:
    async def run(marker: str) -> None:
        await peer.ask("limited", command=line(marker), seconds=TIMEOUT)

    took, left = await _until_gone(run)
    if left:
        survivors[peer.name] = left
        await peer.ask("close")  # so that they do not stay in the way of the next round
        await peer.ask("open")
    return took


async def _until_gone(run: Callable[[str], Awaitable[None]]) -> tuple[Took, int]:
    """Milliseconds from the timeout to the end of the last one, and how many were left when we gave up."""
    marker = f"{secrets.randbelow(900) + 100}.{secrets.randbelow(10**9):09d}"
    gone = 0.0
    left: list[Path] = []

    async def watch(due: float) -> None:
        nonlocal gone, left
        await anyio.sleep_until(due - 0.3)
        left = _with(marker)
        if len(left) < 3:
            raise NotHere(f"only {len(left)} of its 3 processes ran")
        while left and anyio.current_time() < due + give_up():
            await anyio.sleep(0.002)
            left = [entry for entry in left if _has(entry, marker)]
        gone = (anyio.current_time() - due) * 1000

    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, started + TIMEOUT)
        await run(marker)
    return Took(max(0.0, gone)), len(left)


def _with(marker: str) -> list[Path]:
    """The sleeping processes; shells that have the line as an argument end with them."""
    return [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if _has(entry, marker)]


def _has(entry: Path, marker: str) -> bool:
    try:
        return entry.read_bytes().startswith(b"sleep\0" + marker.encode())
    except OSError:
        return False


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=5, engines=("local", "docker"), quick_rounds=1)

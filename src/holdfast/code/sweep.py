"""Removes what sandboxes left that died, never started, or outlived their time. Any process may, at any time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import anyio

from .. import errors
from ..abc import Engine
from ..engines import ENGINES, engine

_INTERVAL = 60.0
"""seconds between two sweeps that a process does by the way"""
_last: dict[str, float] = {}
_starting = threading.Lock()


def named(only: str | None) -> list[Engine]:
    """The engine of a name, or all of them."""
    return [engine(name) for name in ([only] if only and only != "auto" else ENGINES)]


async def sweep(*, engine: str | None = None) -> int:
    """Remove what dead sandboxes left, of sessions and of runs. Returns how many there were.

    Raises:
        EngineError: some could not be listed or removed; all others were.
    """
    removed = 0

    async def one(host: Engine) -> None:
        nonlocal removed
        if (await host.check()).available:
            dead = [record for record in await host.list() if not record.alive]
            await each(partial(host.destroy, record) for record in dead)
            removed += len(dead)

    await each(partial(one, host) for host in named(engine))
    return removed


async def each(work: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do all of it at once. One that fails does not stop the others; its error is raised at the end."""
    failed: list[errors.SandboxError] = []

    async def guarded(do: Callable[[], Awaitable[None]]) -> None:
        try:
            await do()
        except errors.SandboxError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for do in work:
            tasks.start_soon(guarded, do)
    if failed:
        raise failed[0]


def in_background(host: Engine) -> None:
    """Sweep an engine by the way, once a minute at most. The caller neither waits for it nor hears of it.

    In a thread with an event loop of its own: the caller's may end at any moment, and the thread ends with the process.
    """
    now = time.monotonic()
    with _starting:
        if not host.swept_in_background or now - _last.get(host.name, -_INTERVAL) < _INTERVAL:
            return
        _last[host.name] = now

    def run() -> None:
        with contextlib.suppress(Exception):  # whoever sweeps next will do it
            anyio.run(partial(sweep, engine=host.name))

    threading.Thread(target=run, name="holdfast-sweep", daemon=True).start()

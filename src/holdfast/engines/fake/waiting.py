"""How the fake waits: tasks that belong to the event loop and not to a caller, and news that crosses loops.

A session outlives the call that made it, and its programs outlive the client that started them; so their tasks
cannot live in a caller's task group. They end with the event loop, as real programs end with their machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel

Clock = Callable[[], float]
"""Seconds, never going back: `time.monotonic`, or a `FakeClock`."""
_POLL = 0.02
"""Seconds after which a waiting task looks by itself: for a clock that was moved, and for news from another loop."""
_tasks: set[Any] = set()


class FakeClock:
    """Time that passes when a test says so: `clock = FakeClock()`, `FakeEngine(clock=clock)`, `clock.advance(1800)`."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait until `clock` has moved by so much."""
    until = clock() + seconds
    await anyio.lowlevel.checkpoint()
    while (left := until - clock()) > 0:  # noqa: ASYNC110 - a FakeClock tells nobody
        await anyio.sleep(min(left, _POLL))


class News:
    """Wakes everybody who waits. Whoever waits looks again for what it waits for, in a loop."""

    def __init__(self) -> None:
        self._waiting: dict[anyio.Event, anyio.lowlevel.EventLoopToken] = {}

    def tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        try:
            here: object = anyio.lowlevel.current_token()
        except RuntimeError:  # no loop in this thread
            here = None
        for event, loop in waiting.items():
            if loop == here:  # an event of another thread's loop may not be touched; its waiter looks by itself
                event.set()

    async def wait(self, at_most: float = _POLL) -> None:
        event = anyio.Event()
        self._waiting[event] = anyio.lowlevel.current_token()
        with anyio.move_on_after(min(at_most, _POLL)):
            await event.wait()
        self._waiting.pop(event, None)


def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in the current event loop until it is done or the loop ends. It must not raise."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        trio.lowlevel.spawn_system_task(work)
        return
    import asyncio  # noqa: TID251 - anyio has no task without a group

    task = asyncio.get_running_loop().create_task(work())
    _tasks.add(task)  # asyncio itself keeps only a weak reference
    task.add_done_callback(_tasks.discard)

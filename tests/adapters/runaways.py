"""Programs that try to get away, and how they are judged from outside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from tests.conformance import host

RUNAWAYS = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'setsid sleep 1000 & sleep 1000' &) ; sleep 1000"


async def running(mark: str) -> bool:
    """Whether they all run."""
    return len(host.programs(mark)) >= 4


async def left_after_cancelling(work: Callable[[], Coroutine[Any, Any, object]], mark: str) -> list[str]:
    """Cancel something as soon as it runs them; what is left of them."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await host.until(lambda: running(mark))
        tasks.cancel_scope.cancel()
    return await host.gone(mark)

"""The one loop behind the blocking surface, as coroutines of other loops use it."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import pytest

from holdfast import sync

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def thread() -> int:
    return threading.get_ident()


async def test_blocking_callers_and_coroutines_share_one_loop() -> None:
    there = await sync.awaited(thread)
    assert there == await anyio.to_thread.run_sync(lambda: sync.wait_for(thread))
    assert there != threading.get_ident()


async def test_an_error_is_the_caller_s() -> None:
    async def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        await sync.awaited(fail)


async def test_who_is_cancelled_waits_until_the_work_has_cleaned_up() -> None:
    begun, said = threading.Event(), list[str]()

    async def work() -> None:
        try:
            begun.set()
            await anyio.sleep(3600)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
                said.append("clean")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sync.awaited, work)
        await anyio.to_thread.run_sync(begun.wait)
        tasks.cancel_scope.cancel()
    assert said == ["clean"]


async def test_who_is_cancelled_before_it_has_begun_does_not_wait_for_ever() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sync.awaited(lambda: anyio.sleep(3600))
    assert scope.cancelled_caught


async def test_many_may_wait_at_once() -> None:
    """More than a pool of threads has; none of them keeps another from beginning."""
    began, everybody = [0], anyio.Event()

    async def work() -> None:
        began[0] += 1
        while began[0] < 60:
            await anyio.sleep(0.01)

    async def waits() -> None:
        await sync.awaited(work)
        if began[0] == 60:
            everybody.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(waits)
        await everybody.wait()

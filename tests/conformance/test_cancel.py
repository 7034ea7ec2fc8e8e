"""A call that is cancelled, or whose connection breaks, ends its work; what was there before stays as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from holdfast import EndCause, aio, errors
from holdfast.abc import Engine

from . import host
from .conftest import Open, ProbeArgv
from .test_sharing import read_until

pytestmark = pytest.mark.anyio


async def endless() -> AsyncIterator[bytes]:
    """Data that comes for a while and then neither goes on nor ends."""
    for _ in range(20):
        yield bytes(100_000)
    await anyio.sleep_forever()


async def cancelled(call: Callable[[], Awaitable[object]], when: Callable[[], Awaitable[object]]) -> None:
    """Cancel `call` when `when` has returned."""

    async def work() -> None:
        await call()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await when()
            tasks.cancel_scope.cancel()


async def until_running(box: aio.Session, count: int = 1) -> None:
    """Wait until so many programs run, no more and no fewer."""

    async def so_many() -> bool:
        return sum(info.running for info in await box.processes()) == count

    await host.until(so_many)


# --- programs


async def test_a_cancelled_exec_is_over_when_the_call_returns(box: aio.Session, probe: ProbeArgv, mark: str) -> None:
    await cancelled(lambda: box.exec(probe("stubborn")), lambda: until_running(box))
    assert not any(info.running for info in await box.processes())
    assert await host.gone(mark) == []
    assert (await box.exec(probe("say", "works", "", 0))).stdout == "works"


async def test_an_exec_that_is_not_cancelled_goes_on(box: aio.Session, probe: ProbeArgv) -> None:
    results: list[str] = []

    async def neighbour() -> None:
        results.append((await box.exec(probe("rest", 0.5))).stdout)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(neighbour)
        await cancelled(lambda: box.exec(probe("forever")), lambda: until_running(box, 2))
    assert results == ["ready\nover\n"]


async def test_many_are_cancelled_at_once(box: aio.Session, probe: ProbeArgv) -> None:
    async def many() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(box.exec, probe("forever"))

    await cancelled(many, lambda: until_running(box, 8))
    assert not any(info.running for info in await box.processes())


async def test_an_exec_with_a_stalled_source_is_cancelled(box: aio.Session, probe: ProbeArgv) -> None:
    await cancelled(lambda: box.exec(probe("cat"), stdin=endless()), lambda: until_running(box))
    assert not any(info.running for info in await box.processes())


async def test_a_cancelled_wait_leaves_the_program(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("lines"), stdin=True)
    for call in (started.wait, lambda: started.read(999, wait=60)):
        await cancelled(call, lambda: anyio.sleep(0.1))
    await started.write_stdin("still\n", close=True)
    assert (await started.wait(60)).stdout == "ready\ngot still\n"


async def test_a_lost_connection_cancels_what_was_waited_for(
    open_session: Open, probe: ProbeArgv, workflow: str
) -> None:
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        detached = await first.start(probe("forever"))
        outcome: list[BaseException] = []

        async def call() -> None:
            with pytest.raises(errors.SessionError) as caught:
                await first.exec(probe("forever"))
            outcome.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until_running(second, 2)
            await (await first.guest()).aclose()
        assert outcome, "a broken connection is an error, never a result"
        await until_running(second, 1)
        assert (await first.process(detached.id).read()).stdout is not None, "the next call connects again"
        await second.process(detached.id).kill()
        assert (await first.process(detached.id).wait(60)).end_cause is EndCause.KILLED
        await second.close()


async def test_a_call_in_flight_ends_with_its_session(open_session: Open, probe: ProbeArgv, workflow: str) -> None:
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        ends: list[str] = []

        async def call() -> None:
            try:
                ends.append((await first.exec(probe("forever"))).end_cause)
            except errors.SessionError:
                ends.append("lost")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until_running(second)
            await second.close()
        assert ends == ["lost"]


# --- files


async def test_a_cancelled_write_leaves_the_old_content(box: aio.Session) -> None:
    await box.write("file", "old")
    guest = await box.guest()
    for path in ("file", "new"):
        await cancelled(lambda path=path: guest.write_file(path, endless()), lambda: anyio.sleep(0.1))  # type: ignore[misc]
    assert await box.read("file") == b"old"
    assert [entry.path for entry in (await box.list()).entries] == ["file"], "no part of it is left"
    await box.write("new", "x")


async def test_a_source_that_fails_is_no_file(box: aio.Session) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise RuntimeError("the disk of the host")

    with pytest.raises(RuntimeError, match="of the host"):
        await (await box.guest()).write_file("file", broken())
    assert len(await box.list()) == 0
    with pytest.raises(FileNotFoundError):
        await box.upload("/nonexistent/file", "file")
    assert len(await box.list()) == 0


async def test_a_cancelled_download_leaves_nothing(box: aio.Session, tmp_path: Path) -> None:
    await box.write("big", bytes(20_000_000))
    await cancelled(lambda: box.download("big", tmp_path / "big"), lambda: anyio.sleep(0.005))
    assert set(host.names(tmp_path)) <= {"big"}, "all of it, or nothing"
    assert len(await box.read("big")) == 20_000_000


async def test_a_reader_that_stops_does_not_stop_others(box: aio.Session, probe: ProbeArgv) -> None:
    await box.write("big", bytes(20_000_000))
    guest = await box.guest()
    with pytest.raises(RuntimeError, match="enough"):
        await guest.read_file_into("big", _refuse)
    assert (await box.exec(probe("say", "works", "", 0))).stdout == "works"
    assert len(await box.read("big")) == 20_000_000


def _refuse(data: bytes) -> None:
    raise RuntimeError("enough")


# --- opening and running


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.03, 0.08])
async def test_a_cancelled_opening_leaves_nothing(open_session: Open, engine: Engine, delay: float) -> None:
    async def open_and_stay() -> None:
        async with open_session():
            await anyio.sleep_forever()

    await cancelled(open_and_stay, lambda: anyio.sleep(delay))
    assert await aio.list_sessions(engine.name) == []


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.3])
async def test_a_cancelled_run_leaves_nothing(
    engine: Engine, code: Callable[[str], str], mark: str, delay: float
) -> None:
    async def run() -> None:
        await aio.run(code("forever"), engine=engine.name, env={"HF_MARK": mark})

    await cancelled(run, lambda: anyio.sleep(delay))
    assert await host.gone(mark) == []


async def test_a_started_program_survives_a_cancelled_neighbour(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("lines"), stdin=True)
    await read_until(started, b"ready")
    await cancelled(lambda: box.exec(probe("forever")), lambda: until_running(box, 2))
    await started.write_stdin("alive\n", close=True)
    assert (await started.wait(60)).stdout == "ready\ngot alive\n"

"""The end of a program is the end of all that it started: by timeout, by kill, by its own end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from holdfast import EndCause, ExecResult, aio
from holdfast.abc import Capability

from . import host
from .conftest import Open, ProbeArgv
from .requires import requires
from .test_sharing import read_until

pytestmark = pytest.mark.anyio

End = Callable[[aio.Session, list[str], str], Awaitable[EndCause]]


async def by_timeout(box: aio.Session, argv: list[str], mark: str) -> EndCause:
    return (await box.exec(argv, timeout=1.5)).end_cause


async def by_kill(box: aio.Session, argv: list[str], mark: str) -> EndCause:
    started = await box.start(argv)
    await read_until(started, b"ready")
    assert host.programs(mark), "it is seen from outside while it runs"
    await started.kill()
    return (await started.wait(60)).end_cause


async def by_cancel(box: aio.Session, argv: list[str], mark: str) -> EndCause:
    ready = anyio.Event()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await box.exec(argv, on_output=lambda stream, data: ready.set())

            tasks.start_soon(run)
            await ready.wait()
            scope.cancel()
    return EndCause.CANCELLED


ENDS = {EndCause.TIMEOUT: by_timeout, EndCause.KILLED: by_kill, EndCause.CANCELLED: by_cancel}
each_end = pytest.mark.parametrize(("cause", "end"), ENDS.items(), ids=[cause.value for cause in ENDS])


async def still_works(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("say", "still here", "", 0))).stdout == "still here"


# --- time


async def test_a_timeout_ends_a_program_and_keeps_its_output(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("forever"), timeout=2)
    assert (result.end_cause, result.exit_code, result.ok) == (EndCause.TIMEOUT, None, False)
    assert result.stdout == "ready\n"
    await still_works(box, probe)


async def test_a_program_within_its_time_completes(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("rest", 0.2), timeout=60)
    assert (result.end_cause, result.stdout) == (EndCause.COMPLETED, "ready\nover\n")


async def test_a_timeout_does_not_ask(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("stubborn"), timeout=2)
    assert (result.end_cause, result.signal) == (EndCause.TIMEOUT, 9)
    assert "no" not in result.stdout, "it was not sent a signal that it could refuse"
    await still_works(box, probe)


async def test_a_session_has_a_default_timeout(
    monkeypatch: pytest.MonkeyPatch, open_session: Open, probe: ProbeArgv
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS", "1")
    async with open_session() as box:
        assert (await box.exec(probe("forever"))).end_cause is EndCause.TIMEOUT
        assert (await box.exec(probe("rest", 0.1), timeout=60)).ok


# --- signals


async def test_a_signal_is_delivered(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("forever"))
    await read_until(started, b"ready")
    await started.kill(15)
    result = await started.wait(60)
    assert (result.signal, result.exit_code, result.end_cause) == (15, None, EndCause.COMPLETED)


async def test_a_signal_can_be_refused_and_a_kill_cannot(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("stubborn"))
    await read_until(started, b"ready")
    await started.kill(15)
    await read_until(started, b"no\n")
    await started.kill()
    result = await started.wait(60)
    assert (result.signal, result.end_cause) == (9, EndCause.KILLED)


async def test_killing_what_has_ended_changes_nothing(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("say", "", "", 3))
    before = await started.wait(60)
    for number in (9, 15, 9):
        await started.kill(number)
    after = await started.wait(60)
    assert (after.exit_code, after.end_cause) == (before.exit_code, before.end_cause) == (3, EndCause.COMPLETED)


async def test_a_kill_touches_no_neighbour(box: aio.Session, probe: ProbeArgv) -> None:
    neighbour = await box.start(probe("lines"), stdin=True)
    doomed = [await box.start(probe("forever")) for _ in range(3)]
    for one in doomed:
        await read_until(one, b"ready")
        await one.kill()
    await neighbour.write_stdin("alive\n", close=True)
    assert (await neighbour.wait(60)).stdout == "ready\ngot alive\n"


# --- descendants


@requires(Capability.REAL_PROCESSES)
@each_end
@pytest.mark.parametrize("program", ["forever", "stubborn", "escape", "refork"])
async def test_nothing_survives(
    box: aio.Session, probe: ProbeArgv, mark: str, program: str, cause: EndCause, end: End
) -> None:
    argv = probe(program, *(["stay"] if program == "escape" else []))
    assert await end(box, argv, mark) is cause
    assert await host.gone(mark) == []
    await still_works(box, probe)


@requires(Capability.REAL_PROCESSES)
async def test_what_a_program_leaves_is_killed_and_told(box: aio.Session, probe: ProbeArgv, mark: str) -> None:
    result = await box.exec(probe("escape", "go"))
    assert (result.stdout, result.exit_code, result.end_cause) == ("ready\n", 0, EndCause.COMPLETED)
    assert result.left_count >= 4
    assert result.left_processes[0].startswith("python")
    assert await host.gone(mark) == []


@requires(Capability.REAL_PROCESSES)
async def test_a_program_that_leaves_nothing_says_so(box: aio.Session) -> None:
    result: ExecResult = await box.exec("sleep 0.1 & wait; echo $?")
    assert (result.stdout, result.left_count, result.left_processes) == ("0\n", 0, ())


@requires(Capability.REAL_PROCESSES)
async def test_a_background_process_does_not_hold_the_result(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("background", 3600), timeout=60)
    assert (result.stdout, result.exit_code, result.end_cause) == ("hi\n", 0, EndCause.COMPLETED)
    assert result.left_count == 1


@requires(Capability.REAL_PROCESSES)
async def test_a_background_process_lives_on_where_it_may(box: aio.Session, probe: ProbeArgv, mark: str) -> None:
    started = await box.start(probe("background", 1), keep_background=True)
    result = await started.wait(60)
    assert (result.stdout, result.exit_code, result.left_count) == ("hi\nlate\n", 0, 0)
    kept = await box.start(probe("background", 3600), keep_background=True)
    await read_until(kept, b"hi")
    await kept.kill()
    assert await host.gone(mark) == []


@requires(Capability.REAL_PROCESSES)
async def test_closing_ends_everything(box: aio.Session, probe: ProbeArgv, mark: str) -> None:
    for _ in range(3):
        await read_until(await box.start(probe("escape", "stay")), b"ready")
    assert len(host.programs(mark)) >= 3
    await box.close()
    assert await host.gone(mark) == []

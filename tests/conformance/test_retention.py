"""What stays of a session for a look after its end, and what is said of one that was lost."""

from __future__ import annotations

import pytest

from holdfast import EndCause, aio, errors
from holdfast.engines import engine as engine_of

from . import host
from .conftest import Open, ProbeArgv
from .test_lifecycle import alive, ends

pytestmark = pytest.mark.anyio


async def test_a_kept_session_can_be_looked_at_and_runs_nothing(
    open_session: Open, workflow: str, probe: ProbeArgv
) -> None:
    async with open_session(workflow=workflow, keep_for=600) as box:
        await box.write("log", "what happened")
        started = await box.start(probe("forever"))
        assert await aio.end_workflow(workflow, engine=box.effective.engine) == 1
        assert await alive(box)
    async with open_session(workflow=workflow, create=False) as kept:
        assert not kept.workspace_lost
        assert await kept.read("log") == b"what happened"
        assert (await kept.process(started.id).wait(60)).end_cause is EndCause.KILLED
        left = (await kept.status()).lifetime_left_ms
        assert left is not None and left <= 600_000
        await kept.close()
    assert not await alive(box)


async def test_the_end_of_an_agents_run_ends_its_own_sessions(open_session: Open, workflow: str) -> None:
    run = f"{workflow}-run"
    async with (
        open_session(agent=run) as own,
        open_session(agent=run, session="other") as other,
        open_session(agent=run, workflow=workflow) as shared,
    ):
        assert await aio.end_agent(run, engine=own.effective.engine) == 2
        assert [await alive(one) for one in (own, other, shared)] == [False, False, True]
        assert await aio.end_agent(run, engine=own.effective.engine) == 0
        await shared.close()


async def test_a_kept_session_goes_by_its_own_clock_though_it_is_used(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, keep_for=1.5) as box:
        await box.write("file", "x")
    assert await aio.end_workflow(workflow, engine=box.effective.engine) == 1

    async def gone() -> bool:
        try:
            async with open_session(workflow=workflow, create=False) as kept:
                await kept.list()
        except (errors.SessionError, errors.EngineFailed):
            return not await alive(box)
        return False

    await host.until(gone)
    await aio.sweep(engine=box.effective.engine)


async def test_looking_again_does_not_prolong_it(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, keep_for=600) as box:
        name = box.effective.engine
        await aio.end_workflow(workflow, engine=name)
        await aio.end_workflow(workflow, engine=name, keep_for=100_000)
    async with open_session(workflow=workflow, create=False) as kept:
        left = (await kept.status()).lifetime_left_ms
        assert left is not None and left <= 600_000
    assert await aio.end_workflow(workflow, engine=name, keep_for=0) == 1
    assert not await alive(box)


async def test_nothing_is_kept_unless_it_was_asked_for(
    open_session: Open, workflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_session(workflow=workflow) as box:
        pass
    assert await aio.end_workflow(workflow, engine=box.effective.engine) == 1
    assert not await alive(box)
    monkeypatch.setenv("SANDBOX_SESSION_KEEP_FOR_SECONDS", "600")
    async with open_session(workflow=workflow) as box:
        assert not box.workspace_lost
    assert await aio.end_workflow(workflow, engine=box.effective.engine) == 1
    assert await alive(box)
    assert await aio.end_workflow(workflow, engine=box.effective.engine, keep_for=0) == 1
    assert not await alive(box)


async def test_closing_can_keep_too(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as box:
        await box.write("file", "x")
        await box.close(keep_for=600)
        with pytest.raises(errors.SessionClosed):
            await box.read("file")
    async with open_session(workflow=workflow, create=False) as kept:
        assert await kept.read("file") == b"x"
        await kept.close()
        await kept.close(keep_for=600)
    assert not await alive(box)


async def test_a_span_of_time_makes_sense(open_session: Open, workflow: str) -> None:
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(errors.InvalidRequest, match="seconds"):
            async with open_session(workflow=workflow, keep_for=wrong):
                pass
        with pytest.raises(errors.InvalidRequest, match="seconds"):
            await aio.end_workflow(workflow, keep_for=wrong)


async def test_a_workspace_that_was_lost_is_told_of_once(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as box:
        assert not box.workspace_lost
        await box.write("file", "x")
        (record,) = [record for key, record in await aio.list_sessions(box.effective.engine) if key == box.key]
    await engine_of(record.engine).destroy(record)  # somebody else did it: nobody told us
    async with open_session(workflow=workflow) as second:
        assert (second.created, second.workspace_lost) == (True, True)
    async with open_session(workflow=workflow) as third:
        assert (third.created, third.workspace_lost) == (False, False)
        await third.close()
    async with open_session(workflow=workflow) as fourth:
        assert (fourth.created, fourth.workspace_lost) == (True, False), "it was closed on purpose"
        await fourth.close()


async def test_a_session_whose_time_was_over_is_lost_too(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, idle_timeout=1) as box:
        await box.release()
        await ends(box)
    async with open_session(workflow=workflow) as again:
        assert (again.created, again.workspace_lost) == (True, True)
        await again.close()

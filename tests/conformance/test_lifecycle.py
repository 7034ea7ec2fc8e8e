"""Sessions: made once, shared by key, ended by their own clock, and gone when they are closed."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from holdfast import EndCause, Limits, SessionKey, aio, errors
from holdfast.abc import Engine

from . import host
from .conftest import Open, ProbeArgv

pytestmark = pytest.mark.anyio

GONE = (errors.SessionNotFound, errors.SessionLost, errors.SessionClosed)


async def alive(box: aio.Session) -> bool:
    return box.key in [key for key, _ in await aio.list_sessions(box.effective.engine)]


async def ends(box: aio.Session) -> None:
    """Wait until the session has ended by itself."""

    async def dead() -> bool:
        return not await alive(box)

    await host.until(dead)


# --- made and found


async def test_a_session_starts_empty_and_keeps_its_files(box: aio.Session) -> None:
    assert (box.created, box.changed) == (True, False)
    assert len(await box.list()) == 0
    await box.write("file", "x")
    assert await box.read("file") == b"x"


async def test_a_key_is_one_session(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        assert (first.created, second.created, first.key) == (True, False, second.key)
        async with open_session(workflow=workflow, session="other") as third:
            assert third.created, "another name is another session"
            await third.write("file", "x")
            await third.close()
        assert len(await second.list()) == 0
        await first.close()


async def test_twenty_openers_make_one_session(open_session: Open, workflow: str) -> None:
    created: list[bool] = []
    opened = anyio.Event()

    async def opener() -> None:
        async with open_session(workflow=workflow) as box:
            created.append(box.created)
            if len(created) == 20:
                opened.set()
            with anyio.fail_after(60):
                await opened.wait()
            await box.write(f"seen/{len(created)}", "")

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(opener)
    assert sorted(created) == [False] * 19 + [True]
    assert await aio.end_workflow(workflow) == 1


async def test_other_wishes_do_not_change_a_session(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, limits=Limits(workspace_mb=32)) as first:
        async with open_session(workflow=workflow, limits=Limits(workspace_mb=64)) as second:
            assert (second.created, second.changed) == (False, True)
            assert second.effective.limits["workspace_mb"] == 32, "it is shown as it is"
        async with open_session(workflow=workflow, limits=Limits(workspace_mb=32)) as third:
            assert (third.created, third.changed) == (False, False)
        await first.close()


async def test_a_session_that_must_be_there(open_session: Open, workflow: str) -> None:
    with pytest.raises(errors.SessionNotFound, match=workflow):
        async with open_session(workflow=workflow, create=False):
            pass
    async with open_session(workflow=workflow), open_session(workflow=workflow, create=False) as found:
        assert not found.created
        await found.close()


async def test_the_list_has_what_lives(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as box:
        found = {str(key): record for key, record in await aio.list_sessions(box.effective.engine)}
        assert found[str(box.key)].effective == box.effective
        assert SessionKey.from_labels(found[str(box.key)].labels) == box.key
        await box.close()
        assert not await alive(box)


# --- left and closed


async def test_a_private_session_ends_with_its_block(open_session: Open) -> None:
    async with open_session() as box:
        assert await alive(box)
    assert not await alive(box)


async def test_a_shared_session_outlives_its_block(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as box:
        await box.write("file", "x")
    assert await alive(box)
    async with open_session(workflow=workflow) as again:
        assert not again.created
        assert await again.read("file") == b"x"
        await again.close()


async def test_the_end_of_a_workflow_ends_its_sessions_only(open_session: Open, workflow: str) -> None:
    async with (
        open_session(workflow=workflow) as one,
        open_session(workflow=workflow, session="two") as two,
        open_session(workflow=f"{workflow}0") as longer,
        open_session(agent=workflow) as agent,
    ):
        assert await aio.end_workflow(workflow) == 2
        assert [await alive(box) for box in (one, two, longer, agent)] == [False, False, True, True]
        assert await aio.end_workflow(workflow) == 0
        await longer.close()
        await agent.close()


async def test_closing_again_is_fine(box: aio.Session) -> None:
    await box.close()
    await box.close()
    assert not await alive(box)


async def test_closing_from_many_sides_is_fine(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        async with anyio.create_task_group() as tasks:
            for box in (first, second, first, second):
                tasks.start_soon(box.close)
        assert not await alive(first)


async def test_a_closed_session_says_so(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("say", "", "", 0))).ok
    await box.close()
    for attempt in (lambda: box.exec(probe("say", "", "", 0)), lambda: box.write("x", ""), box.list, box.status):
        with pytest.raises(errors.SessionClosed, match="open it again"):
            await attempt()


async def test_a_session_that_another_closed_is_gone(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        await first.close()
        for _ in range(2):
            with pytest.raises(GONE):
                await second.write("x", "")
        async with open_session(workflow=workflow) as third:
            assert third.created
            assert len(await third.list()) == 0
            with pytest.raises(GONE):
                await second.list()  # what it had was another session
            await third.close()


# --- time


async def test_an_idle_session_ends(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, idle_timeout=1) as box:
        await box.write("file", "x")
        await ends(box)
        with pytest.raises(GONE):
            await box.read("file")
    await aio.sweep(engine=box.effective.engine)


async def test_a_used_session_does_not_end(open_session: Open) -> None:
    async with open_session(idle_timeout=2) as box:
        for _ in range(25):
            await box.list()
            await anyio.sleep(0.1)
        assert await alive(box)


async def test_to_look_at_a_session_is_not_to_use_it(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow, idle_timeout=1) as box:
        with anyio.fail_after(60), pytest.raises(GONE):
            while True:
                await box.status()
                await box.processes()
                await anyio.sleep(0.05)
    await aio.sweep(engine=box.effective.engine)


async def test_a_busy_session_is_not_idle(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(idle_timeout=1) as box:
        result = await box.exec(probe("rest", 2))
        assert (result.stdout, result.ok) == ("ready\nover\n", True)


async def test_a_program_without_a_client_keeps_it_busy(open_session: Open, probe: ProbeArgv, workflow: str) -> None:
    async with open_session(workflow=workflow, idle_timeout=1) as box:
        started = await box.start(probe("rest", 3))
    await anyio.sleep(2)
    async with open_session(workflow=workflow, create=False) as again:
        assert (await again.process(started.id).wait(60)).ok
        await again.close()


async def test_the_longest_life_ends_a_busy_session_too(open_session: Open, probe: ProbeArgv, workflow: str) -> None:
    async with open_session(workflow=workflow, max_lifetime=1.5) as box:
        with suppress(*GONE):  # the last words of the guest may arrive, or not
            result = await box.exec(probe("forever"))
            assert (result.end_cause, result.exit_code) == (EndCause.LOST, None)
        await ends(box)
        async with open_session(workflow=workflow) as again:
            assert again.created, "its key is free"
            await again.close()


async def test_a_sweep_removes_the_dead_and_nothing_else(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as living:
        async with open_session(workflow=workflow, session="dead", idle_timeout=1) as dead:
            await dead.release()
            await ends(dead)
        await aio.sweep(engine=living.effective.engine)
        assert await alive(living)
        assert await aio.sweep(engine=living.effective.engine) == 0
        await living.close()


async def test_an_environment_that_is_none_is_refused_before_anything_is_made(
    open_session: Open, workflow: str, engine: Engine
) -> None:
    for env in ({"A=B": "hidden"}, {"": "hidden"}, {"A B": "hidden"}, {"A": "hidden\0"}):
        with pytest.raises(errors.InvalidRequest) as refused:
            async with open_session(workflow=workflow, env=env):
                pass
        assert "hidden" not in str(refused.value)
    assert not await engine.list()
    async with open_session(workflow=workflow, env={"_A1": "x\ny"}) as box:
        await box.close()

"""Sessions end when they should, and only then; what is not known is lost, never success (T32, T42, T47–T49)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from holdfast import EndCause, aio, errors
from tests.faults.host import Box, beneath, box, look_at
from tests.faults.outside import containers

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]


def client_of(code: str, *words: str) -> subprocess.Popen[str]:
    """Another process that uses Holdfast."""
    return subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)


def dead(pid: int) -> bool:
    seen = look_at(pid)
    return seen is None or seen.state in "ZX"


async def all_dead(pids: list[int], within: float = 10) -> None:
    end = time.monotonic() + within
    while not all(dead(pid) for pid in pids):
        assert time.monotonic() < end, [look_at(pid) for pid in pids if not dead(pid)]
        await anyio.sleep(0.05)


async def gone_by_itself(sandbox: Box) -> None:
    """A daemon clears away what ended; the folder of a local session is left for a sweep."""
    if sandbox.session.effective.engine == "local":
        assert await aio.sweep() == 1
    sandbox.left_nothing()
    assert await aio.sweep() == 0


async def lost(sandbox: Box, command: str) -> None:
    with pytest.raises(errors.SessionLost), anyio.fail_after(30):
        await sandbox.exec(command, timeout=60)


async def test_a_guest_killed_by_the_host_is_lost_and_never_success() -> None:
    for _ in range(10):
        async with box() as sandbox:
            async with anyio.create_task_group() as tasks:
                for command in ("echo begun; sleep 60", "sleep 61", "cat /dev/zero"):
                    tasks.start_soon(lost, sandbox, command)
                await sandbox.until(lambda: len(sandbox.programs()) >= 3, "all run")
                everything = [seen.pid for seen in beneath(sandbox.pid)]
                os.kill(sandbox.pid, signal.SIGKILL)
            await all_dead(everything)
            for call in (lambda: sandbox.exec(["true"]), lambda: sandbox.session.write("f", "x")):
                with pytest.raises(errors.SessionNotFound):
                    await call()


async def test_a_guest_that_is_stopped_does_not_hang_a_call() -> None:
    """As a machine that is paused: the exec's own time and a grace, then nobody knows."""
    async with box() as sandbox:
        os.kill(sandbox.pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.SessionLost), anyio.fail_after(30):
                await sandbox.exec(["true"], timeout=0.5)
        finally:
            os.kill(sandbox.pid, signal.SIGCONT)
        await sandbox.works()


CLIENT = """
import sys, holdfast
with holdfast.open_session(workflow=sys.argv[1]) as session:
    started = session.start("echo lives; exec sleep 291", timeout=80)
    print(started.id, flush=True)
    session.exec("setsid sleep 292 & exec sleep 293", timeout=80)
"""


async def test_t42_a_killed_client_takes_its_exec_along_and_leaves_the_started_one(workflow: str) -> None:
    client = client_of(CLIENT, workflow)
    assert client.stdout is not None
    started = (await anyio.to_thread.run_sync(client.stdout.readline)).strip()
    async with box(workflow=workflow, create=False) as sandbox:
        assert not sandbox.session.created
        await sandbox.until(lambda: sandbox.running("292") and sandbox.running("293"), "the exec runs")
        client.kill()
        client.wait()
        await sandbox.until(lambda: not (sandbox.running("292") or sandbox.running("293")), "it is cancelled")
        assert sandbox.running("291")
        process = sandbox.session.process(started)
        assert (await process.read()).stdout == b"lives\n"
        await process.kill()
        assert (await process.wait(20)).end_cause is EndCause.KILLED
        await sandbox.session.close()
        assert dead(sandbox.pid)


RUN = "import holdfast; holdfast.run('import time; print(1, flush=True); time.sleep(281)')"


async def test_t42_a_killed_client_takes_its_run_along(engine: str) -> None:
    client = client_of(RUN)
    end = time.monotonic() + 20

    def running() -> list[int]:
        """PID 1 of the run's sandbox, or its client, if the program runs."""
        roots = [client.pid] if engine == "local" else [int(each["State"]["Pid"]) for each in containers()]
        return [root for root in roots if [seen for seen in beneath(root) if "main.py" in seen.command]]

    while not (roots := running()):
        assert time.monotonic() < end
        await anyio.sleep(0.05)
    programs = [seen.pid for seen in beneath(roots[0]) if engine == "local" or not seen.ours]
    client.kill()
    client.wait()
    await all_dead(programs)
    if engine == "docker":  # whose container its guest ends, when nobody has asked for anything for a while
        await all_dead(roots, within=60)
        end = time.monotonic() + 10
        while containers():
            assert time.monotonic() < end
            await anyio.sleep(0.05)


async def test_t32_t47_a_session_that_is_gone(workflow: str) -> None:
    async with box(workflow=workflow) as sandbox:
        session = sandbox.session
        started = await session.start(["sleep", "60"])
        async with box(workflow=workflow, create=False) as other:
            await other.session.close()
        assert dead(sandbox.pid)
        for call in (
            lambda: session.exec(["true"]),
            lambda: session.write("f", "x"),
            lambda: session.read("f"),
            started.read,
            session.status,
        ):
            with pytest.raises((errors.SessionNotFound, errors.SessionLost)), anyio.fail_after(20):
                await call()
        await session.close()
        with pytest.raises(errors.SessionClosed):
            await session.exec(["true"])
    with pytest.raises(errors.SessionNotFound):
        async with box(workflow=workflow, create=False):
            pass
    async with box(workflow=workflow) as again:
        assert again.session.created
        assert len(await again.session.list()) == 0
        await again.session.close()


async def test_t48_closing_twice_and_at_once(workflow: str) -> None:
    for _ in range(10):
        async with box(workflow=workflow) as sandbox:
            others = []
            for _ in range(3):
                context = aio.open_session(workflow=workflow)
                others.append(await context.__aenter__())
            async with anyio.create_task_group() as tasks:
                for session in (sandbox.session, *others):
                    tasks.start_soon(session.close)
            await sandbox.session.close()
            sandbox.left_nothing()
    assert await aio.end_workflow(workflow) == 0
    assert await aio.end_workflow("never-was") == 0
    assert await aio.sweep() == 0


async def test_t49_busy_is_not_idle(workflow: str) -> None:
    async with box(workflow=workflow, idle_timeout=1) as sandbox:
        result = await sandbox.exec("sleep 3; echo done", timeout=30)  # longer than the session may be idle
        assert result.stdout == "done\n"
        started = await sandbox.session.start("sleep 2.5; echo more")
        await anyio.sleep(2)
        assert not dead(sandbox.pid)
        assert (await started.wait(20)).stdout == "more\n"
        await sandbox.until(lambda: dead(sandbox.pid), "it ends by itself")
    await gone_by_itself(sandbox)


async def test_t49_nothing_outlives_the_lifetime(workflow: str) -> None:
    async with box(workflow=workflow, max_lifetime=2) as sandbox:
        try:
            with anyio.fail_after(20):
                result = await sandbox.exec("trap '' TERM; setsid sleep 285 & sleep 286", timeout=60)
            assert (result.end_cause, result.exit_code, result.ok) == (EndCause.LOST, None, False)
        except errors.SessionLost:
            pass  # the guest went before it could say so
        await sandbox.until(lambda: dead(sandbox.pid), "it is over")
    await gone_by_itself(sandbox)


async def test_open_that_is_cancelled_leaves_nothing(state: str, engine: str) -> None:
    """T41, at many points of the way."""
    begun = time.monotonic()
    async with box():
        whole = time.monotonic() - begun
    rounds = 50 if engine == "local" else 20
    for round_ in range(rounds):
        with anyio.move_on_after(whole * round_ / rounds * 1.25):
            async with aio.open_session():  # private: its end is the block's
                await anyio.sleep_forever()
    await anyio.sleep(0.3)
    assert await aio.list_sessions() == []
    assert engine == "local" or not containers()
    mine = [seen for seen in beneath(os.getpid()) if state in seen.command]
    assert not mine, mine
    assert not list(Path(state, "sessions").glob("*/sock"))  # noqa: ASYNC240

"""What happens to a container behind our back, and what containers leave behind (T09, T32, T38–T40, T43, T47, T57)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from holdfast import aio, errors
from tests.faults.host import Box, box
from tests.faults.outside import DockerOutside, containers, daemon

pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.on("docker"),
]

FULL = os.environ.get("HOLDFAST_FULL_PROOF") == "1"
"""Also what takes minutes."""


def container_of(sandbox: Box) -> str:
    assert isinstance(sandbox.outside, DockerOutside)
    return str(sandbox.outside.found["Id"])


async def by_hand(work: Callable[[str], object], sandbox: Box) -> None:
    await anyio.to_thread.run_sync(work, container_of(sandbox))


async def lost_while(work: Callable[[str], object], sandbox: Box) -> None:
    """A call that runs while something is done to the container is lost: no exit code, no half of an output."""
    with pytest.raises(errors.SessionLost):
        async with anyio.create_task_group() as tasks:

            async def strike() -> None:
                await sandbox.until(lambda: sandbox.running("301"), "the program runs")
                await by_hand(work, sandbox)

            tasks.start_soon(strike)
            try:
                with anyio.fail_after(40):
                    await sandbox.exec("echo begun; sleep 301; echo ended", timeout=3)
            except errors.SessionLost as error:
                lost = error
        raise lost


def remove(container: str) -> None:
    daemon().remove_container(container, force=True, v=True)


@pytest.mark.parametrize("work", [lambda one: daemon().kill(one), remove], ids=["killed", "removed"])
async def test_t39_t47_a_container_that_goes_is_lost_and_the_next_is_new(
    work: Callable[[str], object], workflow: str
) -> None:
    async with box(workflow=workflow) as sandbox:
        await sandbox.session.write("file", "x")
        await lost_while(work, sandbox)
        for call in (lambda: sandbox.exec(["true"]), lambda: sandbox.session.write("file", "y")):
            with pytest.raises(errors.SessionNotFound), anyio.fail_after(20):
                await call()
    sandbox.left_nothing()
    async with box(workflow=workflow) as again:
        assert again.session.created
        assert len(await again.session.list()) == 0
        await again.session.close()


async def test_t32_t46_t47_a_paused_container_is_named_and_goes_on_afterwards() -> None:
    async with box() as sandbox, box() as other:
        await sandbox.session.write("file", "old")
        await lost_while(lambda one: daemon().pause(one), sandbox)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(other.works)  # nobody else has to wait
        for call in (lambda: sandbox.exec(["true"]), lambda: sandbox.session.write("file", "new")):
            with pytest.raises(errors.SessionLost, match="paused"), anyio.fail_after(20):
                await call()
        daemon().unpause(container_of(sandbox))
        await sandbox.works()
        assert await sandbox.session.read_text("file") == "old"
        await sandbox.empty()  # what ran, too, has ended


async def test_t09_nothing_of_a_container_goes_into_a_log_of_the_daemon() -> None:
    async with box() as sandbox:
        await sandbox.exec("head -c 5000000 /dev/zero; echo noise > /proc/1/fd/1; echo noise > /dev/console")
        assert isinstance(sandbox.outside, DockerOutside)
        found = sandbox.outside.found
        assert (found["LogPath"], found["HostConfig"]["LogConfig"]["Type"]) == ("", "none")


async def test_t38_opening_and_closing_leaves_nothing() -> None:
    networks = {each["Id"] for each in daemon().networks()}
    limiter = anyio.CapacityLimiter(4)

    async def once() -> None:
        async with limiter, box() as sandbox:
            await sandbox.works()
            assert isinstance(sandbox.outside, DockerOutside)
            assert sandbox.outside.volumes  # so that `left_nothing` looks for some

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(once)
    assert not containers()
    assert {each["Id"] for each in daemon().networks()} == networks


OPENERS = """
import sys, anyio
from holdfast import aio
async def opener(seen):
    async with aio.open_session(workflow=sys.argv[1]) as box:
        seen.append(box.created)
        await box.write(f"seen/{sys.argv[2]}-{len(seen)}", "")
async def main():
    seen = []
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(opener, seen)
    print(len(seen), sum(seen))
anyio.run(main)
"""


async def test_t40_twenty_tasks_in_four_processes_make_one_container(workflow: str) -> None:
    openers = [
        subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", OPENERS, workflow, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    try:
        said = [await anyio.to_thread.run_sync(opener.communicate) for opener in openers]
        assert [opener.returncode for opener in openers] == [0] * 4, [stderr[-2000:] for _, stderr in said]
        assert [stdout.split()[0] for stdout, _ in said] == ["20"] * 4
        assert sorted(stdout.split()[1] for stdout, _ in said) == ["0", "0", "0", "1"]
        assert len(containers()) == 1
        async with box(workflow=workflow, create=False) as sandbox:
            assert len(await sandbox.session.list("seen")) == 80
    finally:
        await aio.end_workflow(workflow)
    assert not containers()


async def test_t43_many_workflows_end_at_once_and_one_of_them_is_stuck(workflow: str) -> None:
    count = 50 if FULL else 10
    names = [f"{workflow}-{number}" for number in range(count)]
    limiter = anyio.CapacityLimiter(4)

    async def make(name: str) -> None:
        async with limiter, aio.open_session(workflow=name) as session:
            await session.start("trap '' TERM HUP INT; while :; do sleep 1; done")

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(make, name)
    made = containers()
    assert len(made) == count
    await anyio.to_thread.run_sync(daemon().pause, made[0]["Id"])
    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(aio.end_workflow, name)
    assert not containers()


async def test_t57_secrets_are_seen_by_programs_and_by_nobody_else() -> None:
    secret = "hunter2-0451"
    async with box(env={"TOKEN": secret}) as sandbox:
        shown = await sandbox.exec('echo "$TOKEN"; echo "$MORE"', env={"MORE": f"{secret}-more"})
        assert shown.stdout == f"{secret}\n{secret}-more\n"
        with pytest.raises(errors.CommandNotFound) as failed:
            await sandbox.exec(["no-such-program"], env={"MORE": secret})
        assert secret not in str(failed.value)
        assert secret not in json.dumps(daemon().inspect_container(container_of(sandbox)))
        assert secret not in json.dumps(daemon().top(container_of(sandbox)))
        with pytest.raises(errors.InvalidRequest) as refused:
            await sandbox.exec(["true"], env={"A=B": secret})
        assert secret not in str(refused.value)

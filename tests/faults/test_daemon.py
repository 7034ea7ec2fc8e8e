"""A daemon that goes away or hangs: a named error in time, never an exit code that nobody sent (T44)."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from holdfast import ExecResult, aio, errors
from holdfast.engines import installed
from holdfast.engines.docker import near
from holdfast.engines.docker.engine import DockerEngine
from tests.faults.conftest import far
from tests.faults.host import Box, box
from tests.faults.private_daemon import IMAGE, PrivateDaemon, require_private_daemon

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(180), pytest.mark.on("docker")]

GONE = (errors.SessionLost, errors.SessionNotFound, errors.EngineUnavailable)


@pytest.fixture(scope="module")
def started() -> Iterator[PrivateDaemon]:
    require_private_daemon()
    daemon = PrivateDaemon()
    try:
        daemon.start()
        daemon.add_image()
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def private(started: PrivateDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateDaemon]:
    monkeypatch.setenv("DOCKER_HOST", started.host)
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", IMAGE)
    monkeypatch.setattr(near, "dial", far)  # who goes straight to the guest does not notice
    with installed(DockerEngine()):
        yield started


async def running(sandbox: Box, results: list[ExecResult | Exception], command: str) -> None:
    try:
        with anyio.fail_after(60):
            results.append(await sandbox.exec(command, timeout=40))
    except errors.SandboxError as error:
        results.append(error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_t44_a_daemon_that_goes_away_in_the_middle(
    private: PrivateDaemon, number: signal.Signals, workflow: str
) -> None:
    results: list[ExecResult | Exception] = []
    async with box(image=IMAGE, workflow=workflow) as sandbox:
        started = await sandbox.session.start("sleep 303", timeout=60)
        async with anyio.create_task_group() as tasks:
            for command in ("echo begun; sleep 301", "while :; do echo flood; done"):
                tasks.start_soon(running, sandbox, results, command)
            await sandbox.until(lambda: sandbox.running("301") and sandbox.running("flood"), "both run")
            await anyio.to_thread.run_sync(private.stop, number)
        assert [type(result) for result in results] == [errors.SessionLost] * 2, results
        for call in (
            lambda: sandbox.exec(["true"]),
            lambda: sandbox.session.write("f", "x"),
            lambda: started.wait(10),
        ):
            with pytest.raises(GONE), anyio.fail_after(30):
                await call()
        with pytest.raises(errors.EngineUnavailable), anyio.fail_after(30):
            async with aio.open_session(image=IMAGE):
                pass
        await anyio.to_thread.run_sync(private.start)
        with pytest.raises((errors.SessionLost, errors.SessionNotFound)), anyio.fail_after(30):
            await sandbox.exec(["true"])
    async with box(image=IMAGE, workflow=workflow) as again:
        assert again.session.created
        await again.works()
        await again.session.close()
    assert not private.client.containers(all=True)


async def test_t44_a_daemon_that_hangs(private: PrivateDaemon) -> None:
    async with box(image=IMAGE) as sandbox:
        private.send(signal.SIGSTOP)
        try:
            with pytest.raises(errors.EngineUnavailable), anyio.fail_after(50):
                async with aio.open_session(image=IMAGE):
                    pass
            with pytest.raises(errors.SessionLost), anyio.fail_after(30):
                await sandbox.exec(["sleep", "0.01"], timeout=1)
        finally:
            private.send(signal.SIGCONT)
        await sandbox.works()
        async with box(image=IMAGE) as other:
            await other.works()


async def test_t44_who_goes_straight_to_the_guest_does_not_notice(
    private: PrivateDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOLDFAST_ENGINE", "docker")
    monkeypatch.setenv("DOCKER_HOST", private.host)
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", IMAGE)
    async with box(image=IMAGE) as sandbox:
        private.send(signal.SIGSTOP)
        try:
            result = await sandbox.exec("echo begun; sleep 0.1; echo ended", timeout=10)
        finally:
            private.send(signal.SIGCONT)
        assert (result.stdout, result.exit_code) == ("begun\nended\n", 0)

"""The engine dies: a run is lost, never wrong, and the next one works when the engine is back."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import time

import anyio
import anyio.to_thread
import pytest

from holdfast import aio, errors
from holdfast.engines.dagger.engine import DaggerEngine

from .conftest import OwnEngine, gone, processes

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(400)]


@pytest.fixture
def own(dagger: DaggerEngine, own_engine: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> OwnEngine:
    monkeypatch.setenv("DAGGER_HOST", own_engine.host)
    return own_engine


async def test_an_engine_that_dies_in_mid_run(own: OwnEngine, mark: str) -> None:
    """The run is lost at once; while the engine is away the error says so; then images come again by themselves."""
    assert (await aio.run("print(1)")).ok
    lost_after: list[float] = []

    async def kill() -> None:
        while not processes(mark):
            await anyio.sleep(0.05)
        await anyio.to_thread.run_sync(own.kill)
        lost_after.append(time.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        with pytest.raises(errors.SessionLost, match="nobody knows"):
            await aio.run("import time; time.sleep(600)", env={"MARK": mark}, timeout=300)
    assert gone(mark)
    with anyio.fail_after(30), pytest.raises(errors.EngineUnavailable, match="nothing answers"):
        await aio.run("print(1)")
    await anyio.to_thread.run_sync(own.start)
    with anyio.fail_after(120):
        assert (await aio.run("print(2)")).stdout == "2\n"


CLIENT = """
import holdfast, sys
from holdfast import errors
for number in range(100):
    try:
        result = holdfast.run(f"import time; time.sleep(0.05); print('value', {number} * 7)")
    except errors.SandboxError as error:
        print("error", error.code, flush=True)
        continue
    assert result.end_cause == "completed" and result.exit_code == 0, result
    assert result.stdout == f"value {number * 7}\\n", result
    print("right", flush=True)
"""


async def test_kills_at_random_moments_never_give_a_wrong_result(own: OwnEngine) -> None:
    """50 kills of client, session process and engine; a client that got a wrong result ends with status 1."""
    chance = random.Random(7)
    kills = {"client": 24, "session": 24, "engine": 2}
    plan = [what for what, count in kills.items() for _ in range(count)]
    chance.shuffle(plan)
    right = 0
    client: subprocess.Popen[str] | None = None

    def start() -> subprocess.Popen[str]:
        env = {**os.environ, "MARK": mark}
        return subprocess.Popen([sys.executable, "-c", CLIENT], env=env, stdout=subprocess.PIPE, text=True)

    mark = f"hfmark{secrets.token_hex(8)}"
    for what in plan:
        if client is None or client.poll() is not None:
            if client is not None:
                assert client.returncode != 1, client.communicate()
            client = start()
            assert client.stdout is not None
            while "right" not in (line := client.stdout.readline()):
                assert line, "it ended before its first result"
            right += 1
        await anyio.sleep(chance.uniform(0, 0.25))
        if what == "client":
            client.kill()
            said, _ = await anyio.to_thread.run_sync(client.communicate)
            right += said.count("right")
            client = None
        elif what == "session":
            for pid in _sessions_of(client.pid):
                with contextlib.suppress(ProcessLookupError):  # one that only told its version has ended by now
                    os.kill(pid, signal.SIGKILL)
        else:
            await anyio.to_thread.run_sync(own.kill)
            await anyio.to_thread.run_sync(own.start)
    if client is not None:
        client.kill()
        said, _ = client.communicate()
        right += said.count("right")
    assert right > 20
    assert gone(mark)


def _sessions_of(parent: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]

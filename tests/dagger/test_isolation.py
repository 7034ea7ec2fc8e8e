"""What a run on Dagger can see and reach: judged from outside where that can be, each negative with its twin."""

from __future__ import annotations

import json

import anyio
import docker
import pytest

from holdfast import EndCause, Limits, aio, errors
from holdfast.engines.dagger.engine import DaggerEngine
from tests.testbed import require

from .conftest import CONTAINER, gone, processes

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

_CONNECT = """
import socket, sys
for family, address in ((socket.AF_INET, ("{ip}", {port})), (socket.AF_INET6, ("::1", 1))):
    try:
        s = socket.socket(family)
        s.settimeout(5)
        s.connect(address)
        print("connected")
    except OSError as error:
        print(type(error).__name__, error.errno)
"""


def registry() -> tuple[str, int]:
    """A server of the testbed that runs with network can reach, by its address on the engine's network."""
    client = docker.from_env()
    try:
        found = client.containers.get("holdfast-testbed-registry").attrs
        (port,) = (int(name.split("/")[0]) for name in found["NetworkSettings"]["Ports"])
        return next(iter(found["NetworkSettings"]["Networks"].values()))["IPAddress"], port
    finally:
        client.close()


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])


async def test_no_network_without_both_words(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """T50, T55: the request's and the operator's; a server that answers to runs with network is there."""
    ip, port = registry()
    code = _CONNECT.format(ip=ip, port=port)
    refused = await aio.run(code)
    assert refused.stdout.splitlines() == ["PermissionError 1", "PermissionError 1"], refused.stderr
    with pytest.raises(errors.PolicyError, match="STATION_SANDBOX_ALLOW_NETWORK"):
        await aio.run(code, network=True)
    monkeypatch.setenv("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT", "true")
    assert (await aio.run(code)).stdout == refused.stdout
    connected = await aio.run(code, network=True)
    assert connected.stdout.splitlines()[0] == "connected", connected.stdout


async def test_sockets_and_calls_that_are_closed(dagger: DaggerEngine) -> None:
    """T52: the same as on the other engines; what is left are unix sockets among the run's own programs."""
    code = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
families = []
for family in range(46):
    try:
        socket.socket(family).close()
        families.append(family)
    except OSError:
        pass
calls = {}
for name, number in {"io_uring_setup": 425, "ptrace": 101, "keyctl": 250, "unshare": 272, "mount": 165, "bpf": 321,
                     "userfaultfd": 323}.items():
    libc.syscall(number, 0x10000000 if name == "unshare" else 0, 0, 0, 0, 0)
    calls[name] = ctypes.get_errno()
    ctypes.set_errno(0)
print(json.dumps([families, calls]))
"""
    result = await aio.run(code)
    families, calls = json.loads(result.stdout)
    assert families == [1]
    assert all(calls.values()), calls


async def test_a_run_is_nobody_in_particular(dagger: DaggerEngine) -> None:
    """T54: no root, no capabilities, no new privileges, a filter; and no two runs are the same user."""
    code = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps([os.getuid(), os.getgroups(), status["CapEff"].strip(), status["CapPrm"].strip(),
                  status["NoNewPrivs"].strip(), status["Seccomp"].strip()]))
"""
    first, second = [json.loads((await aio.run(code)).stdout) for _ in range(2)]
    assert first[0] >= 1_000_000
    assert first[0] != second[0]
    assert first[1:] == [[], "0" * 16, "0" * 16, "1", "2"]


async def test_the_guest_and_the_request_are_out_of_reach(dagger: DaggerEngine, mark: str) -> None:
    code = """
import os
for path in ("/.holdfast/request", "/.holdfast/out/answer", "/proc/1/environ", "/proc/1/mem", "/proc/1/fd/1"):
    try:
        open(path, "rb").read(1)
        print("read", path)
    except OSError as error:
        print(type(error).__name__)
for path in ("/.holdfast/x", "/.holdfast/out/answer", "/etc/x", "/usr/bin/x", "/x"):
    try:
        open(path, "wb")
        print("wrote", path)
    except OSError as error:
        print(type(error).__name__)
for name in ("TERM", "SEGV", "KILL", "STOP"):
    os.kill(1, getattr(__import__("signal"), "SIG" + name))
print(sorted(name for name in os.environ if name.startswith(("OTEL", "TRACE", "DAGGER", "HOLDFAST"))))
"""
    result = await aio.run(code, env={"SECRET": mark})
    lines = result.stdout.splitlines()
    assert lines == ["PermissionError"] * 10 + ["[]"], result.stdout + result.stderr


async def test_nothing_of_the_run_is_in_the_engines_log(dagger: DaggerEngine, mark: str) -> None:
    """T57: by itself the engine prints every argument of every exec."""
    code = f"import sys; print('{mark}-out'); print('{mark}-err', file=sys.stderr); raise SystemExit(3)"
    await aio.run(code, args=[f"{mark}-arg"], env={"E": f"{mark}-env"}, files={"f": f"{mark}-file"}, stdin=f"{mark}-in")
    client = docker.from_env()
    try:
        log = client.containers.get(CONTAINER).logs(tail=3000)
    finally:
        client.close()
    assert mark.encode() not in log
    assert b"replay" in log  # it does print what it starts


async def test_a_timeout_ends_everything(dagger: DaggerEngine, mark: str) -> None:
    """T01 to T03."""
    code = f"""
import os, subprocess, time
subprocess.Popen(["setsid", "nohup", "sleep", "600"], env={{**os.environ, "DEEP": "{mark}"}})
print("ready", flush=True)
time.sleep(600)
"""
    result = await aio.run(code, timeout=2, env={"MARK": mark})
    assert (result.end_cause, result.exit_code, result.stdout) == (EndCause.TIMEOUT, None, "ready\n")
    assert result.left_count >= 1
    assert gone(mark)


async def test_a_cancelled_run_is_gone(dagger: DaggerEngine, mark: str) -> None:
    """T05: and so is what it started; the session goes on."""
    code = "import subprocess, time; subprocess.Popen(['setsid', 'sleep', '600']); time.sleep(600)"
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                while len(processes(mark)) < 2:
                    await anyio.sleep(0.05)
                scope.cancel()

            tasks.start_soon(cancel)
            await aio.run(code, env={"MARK": mark})
    assert scope.cancelled_caught
    assert gone(mark)
    assert (await aio.run("print(1)")).ok


async def test_limits_that_hold(dagger: DaggerEngine) -> None:
    """T14, T15, T34 as far as Dagger goes; the rest is said to be not held."""
    asked = Limits(memory_mb=128, processes=40, workspace_mb=8, max_file_size_bytes=4 << 20)
    memory = await aio.run("x = bytearray(256 << 20)", limits=asked)
    assert "MemoryError" in memory.stderr
    assert (await aio.run("x = bytearray(32 << 20)", limits=asked)).ok
    forks = "import os\nfor n in range(400):\n  if os.fork() == 0: os._exit(__import__('time').sleep(60))"
    assert "BlockingIOError" in (await aio.run(forks, limits=asked)).stderr
    assert (await aio.run(forks.replace("400", "20"), limits=asked)).ok
    fill = "for n in range({0}): open(f'f{{n}}', 'wb').write(bytes(1 << 20))"
    full = await aio.run(fill.format(20), limits=asked)
    assert "No space left" in full.stderr
    assert full.end_cause is EndCause.DISK_FULL
    assert (await aio.run(fill.format(4), limits=asked)).ok
    big = await aio.run("open('big', 'wb').write(bytes(6 << 20))", limits=asked)
    assert "File too large" in big.stderr
    told = big.limits
    assert set(told["not_held"]) == {"memory_mb", "cpu_millicores", "max_files"}
    assert set(told["held_by"]) == {"workspace_mb", "processes", "open_files", "max_file_size_bytes"}


async def test_limits_that_are_required_and_cannot_hold(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REQUIRE_LIMITS", "true")
    with pytest.raises(errors.LimitsNotAvailable, match=r"memory_mb.*HOLDFAST_DAGGER_CGROUP_PARENT"):
        await aio.run("1")
    unlimited = Limits(memory_mb=None, cpu_millicores=None, max_files=None)
    assert (await aio.run("print(1)", limits=unlimited)).ok
    monkeypatch.setenv("HOLDFAST_DAGGER_CGROUP_PARENT", "/runs")
    result = await aio.run("print(1)", limits=Limits(max_files=None))
    assert "the cgroup /runs" in result.limits["held_by"]["memory_mb"]


async def test_runs_at_once_are_strangers(dagger: DaggerEngine) -> None:
    """A process limit of one does not count another's processes, and nobody sees anybody."""
    code = """
import os, time
for n in range(30):
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
print(len([pid for pid in os.listdir("/proc") if pid.isdigit()]), os.listdir("/tmp"))
open("/tmp/left", "w").write("x")
"""
    results = []

    async def one() -> None:
        results.append(await aio.run(code, limits=Limits(processes=40)))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    for result in results:
        count, listing = result.stdout.split(" ", 1)
        assert result.ok, result.stderr
        assert int(count) < 45
        assert listing == "[]\n"

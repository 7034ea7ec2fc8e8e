"""The way to the engine: addresses, the session that runs share, its bounds, and what a wrong word leads to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from holdfast import aio, errors, telemetry
from holdfast.engines.dagger import cli, execution
from holdfast.engines.dagger.address import Address
from holdfast.engines.dagger.engine import DaggerEngine
from holdfast.engines.dagger.session import DaggerSession
from tests.testbed import require

from .conftest import elsewhere, gone, processes

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


def tenants(mark: str) -> list[str]:
    """Programs of runs: unlike a client, they have the mark in their environment only."""
    return [pid for pid in processes(mark) if mark.encode() not in _line(pid)]


def _line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def session_of(dagger: DaggerEngine) -> Any:
    return dagger._sessions._current


@pytest.mark.parametrize(
    ("way", "mode"),
    [("unix", "sidecar"), ("tcp", "sidecar"), ("tcp", "remote"), ("container", "docker_socket"), ("container", None)],
)
async def test_every_way_to_an_engine(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, way: str, mode: str | None
) -> None:
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    monkeypatch.setenv("DAGGER_HOST", cast("dict[str, str]", require("dagger")["hosts"])[way])
    if mode:
        monkeypatch.setenv("STATION_SANDBOX_ENGINE_MODE", mode)
    assert (await aio.run("print(6 * 7)")).stdout == "42\n"


async def test_the_name_that_dagger_itself_uses_works_too(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_RUNNER_HOST", os.environ["DAGGER_HOST"])
    monkeypatch.delenv("DAGGER_HOST")
    assert (await aio.run("print(6 * 7)")).stdout == "42\n"


async def test_nobody_there(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error that says where, and soon: the SDK would wait for ever."""
    for host in (f"unix://{tmp_path}/none.sock", "tcp://127.0.0.1:1"):
        monkeypatch.setenv("DAGGER_HOST", host)
        with anyio.fail_after(20), pytest.raises(errors.EngineUnavailable, match=host):
            await aio.run("1")
    monkeypatch.delenv("DAGGER_HOST")
    with pytest.raises(errors.EngineUnavailable, match="set DAGGER_HOST"):
        await aio.run("1")


async def test_somebody_else_there(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Something that takes connections and says nothing: the connect has a deadline, and the CLI does not stay."""
    from holdfast.engines.dagger import session

    monkeypatch.setattr(session, "_CONNECT_SECONDS", 2.0)
    async with await anyio.create_unix_listener(tmp_path / "silent.sock"):
        monkeypatch.setenv("DAGGER_HOST", f"unix://{tmp_path}/silent.sock")
        with anyio.fail_after(20), pytest.raises(errors.EngineUnavailable, match="within 2 s"):
            await aio.run("1")
    assert gone(str(tmp_path))


async def test_a_cli_that_is_none(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "dagger"
    fake.write_text("#!/bin/sh\necho 'this is no dagger' >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", str(fake))
    with pytest.raises(errors.EngineUnavailable, match="this is no dagger"):
        await aio.run("1")


def cli_that_says(tmp_path: Path, version: str, session: str) -> str:
    """A CLI with a version of our choice; `session` is what its sessions do, in words of the shell."""
    program = tmp_path / f"dagger-{version}"
    program.write_text(f'#!/bin/sh\n[ "$1" = version ] && exec echo dagger {version}\n{session}\n')
    program.chmod(0o755)
    return str(program)


async def test_a_cli_of_another_version_is_named(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where its session found an engine, or did not: then both are said."""
    real = f'exec {require("dagger")["cli"]} "$@"'
    for version, session, says in (
        ("v0.18.2", real, "CLI is v0.18.2.*use v0.21"),
        ("v1.0.0", "echo no luck >&2; exit 1", "CLI is v1.0.0.*no luck"),
    ):
        monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", cli_that_says(tmp_path, version, session))
        with pytest.raises(errors.EngineUnavailable, match=says):
            await aio.run("print(1)")
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", cli_that_says(tmp_path, "v0.21.0", real))
    assert (await aio.run("print(1)")).stdout == "1\n"
    assert session_of(dagger).alive


async def test_runs_share_one_session_and_it_is_recycled(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DAGGER_RECYCLE_AFTER_RUNS", "6")
    pids: list[int] = []

    async def one() -> None:
        assert (await aio.run("print(1)")).ok
        pids.append(session_of(dagger)._process.pid)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    assert len(set(pids)) == 1
    for _ in range(4):
        await one()
    assert len(set(pids)) == 2
    with anyio.fail_after(20):  # the first one is gone
        while _alive(pids[0]):
            await anyio.sleep(0.05)


async def test_a_session_whose_caller_did_not_wait_for_it_is_used_and_recycled(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_DAGGER_RECYCLE_AFTER_RUNS", "2")
    slow = f'sleep 1; exec {require("dagger")["cli"]} "$@"'
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", cli_that_says(tmp_path, "v0.21.8", slow))
    with anyio.move_on_after(0.3) as scope:
        await aio.run("print(1)")
    assert scope.cancelled_caught
    pids = []
    for _ in range(3):
        assert (await aio.run("print(1)")).ok
        pids.append(session_of(dagger)._process.pid)
    assert pids[0] == pids[1] != pids[2]
    with anyio.fail_after(20):
        while _alive(pids[0]):
            await anyio.sleep(0.05)


async def test_only_so_many_at_once(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    monkeypatch.setenv("HOLDFAST_DAGGER_MAX_PARALLEL_RUNS", "2")
    spans: list[tuple[int, int]] = []

    async def one() -> None:
        result = await aio.run("import time; a = time.time_ns(); time.sleep(0.3); print(a, time.time_ns())")
        start, end = map(int, result.stdout.split())
        spans.append((start, end))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    for start, _ in spans:
        assert sum(a <= start < b for a, b in spans) <= 2


async def test_a_session_that_is_killed_is_lost_and_replaced(dagger: DaggerEngine, mark: str) -> None:
    async def kill() -> None:
        while not tenants(mark):
            await anyio.sleep(0.05)
        os.kill(session_of(dagger)._process.pid, signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        started = time.monotonic()
        with pytest.raises(errors.SessionLost, match="nobody knows"):
            await aio.run("import time; time.sleep(600)", env={"MARK": mark})
        assert time.monotonic() - started < 60
    assert gone(mark)
    assert (await aio.run("print(1)")).ok


async def test_a_session_that_dies_before_its_first_word(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has run, so nothing is lost: the error says so, and the next run works."""
    dagger.close()
    start = DaggerSession.start

    def doomed(program: str, where: Address) -> DaggerSession:
        made = start(program, where)
        made._process.kill()
        made._process.wait()
        return made

    with monkeypatch.context() as patched:
        patched.setattr(DaggerSession, "start", doomed)
        with pytest.raises(errors.EngineUnavailable, match="before the program ran"):
            await aio.run("print(1)")
    assert (await aio.run("print(2)")).stdout == "2\n"


async def test_a_session_that_another_run_gives_up_meanwhile(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of runs at once, the first that finds the engine gone ends the session that all of them have, folder and all."""
    kept = execution._written

    def given_up(path: Path, data: bytes) -> Path:
        session_of(dagger).close(patience=0)
        return kept(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(execution, "_written", given_up)
        with pytest.raises(errors.SessionLost, match="nobody knows"):
            await aio.run("print(1)")
    assert (await aio.run("print(2)")).stdout == "2\n"


def test_a_request_that_cannot_be_kept_here_is_named(dagger: DaggerEngine) -> None:
    """As on a disk that is full; a smaller one goes through."""
    told = elsewhere(
        "import holdfast, resource\n"
        "holdfast.run('1')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    holdfast.run('1', files={'large': 'x' * 200_000})\n"
        "except holdfast.errors.EngineFailed as error:\n"
        "    print(error)\n"
        "print(holdfast.run('print(6 * 7)').stdout)\n"
    )
    assert "cannot be kept here: File too large, in /" in told.stdout, told.stderr
    assert told.stdout.endswith("42\n\n")


def test_a_client_that_is_killed_leaves_nothing(dagger: DaggerEngine, mark: str) -> None:
    """Neither the program nor the session's process, which carries the mark too."""
    code = f"import holdfast; holdfast.run('import time; time.sleep(600)', env={{'IN': '{mark}-inside'}})"
    client = subprocess.Popen([sys.executable, "-c", code, mark], env={**os.environ, "MARK": mark})
    deadline = time.monotonic() + 30
    while len(tenants(f"{mark}-inside")) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client.kill()
    client.wait()
    assert gone(mark)


def test_ctrl_c_in_the_shell_leaves_nothing(dagger: DaggerEngine, mark: str) -> None:
    words = ["run", "-e", f"M={mark}", "-c", "import time; time.sleep(600)"]
    code = f"import sys; sys.argv[1:] = {words!r}; from holdfast.cli import main; main()"
    client = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not tenants(mark):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client.send_signal(signal.SIGINT)
    assert client.wait(30) == 130
    assert gone(mark)


def test_versions_that_do_not_fit_are_named() -> None:
    assert cli.skew("v0.21.8") is None
    assert cli.skew("v0.21.99", "v0.21.0") is None
    assert cli.skew("") is None  # a development build says nothing
    assert "engine is v0.20.3" in str(cli.skew("v0.20.3"))
    assert "CLI is v1.0.0" in str(cli.skew("v0.21.8", "v1.0.0"))
    assert cli.version_of(require("dagger")["cli"]) == "v0.21.8"
    assert cli.version_of("/bin/true") == ""


def test_it_is_chosen_by_auto_when_it_is_configured(dagger: DaggerEngine) -> None:
    told = elsewhere("import holdfast; print(holdfast.run('1').engine)", HOLDFAST_ENGINE="auto")
    assert told.stdout == "dagger\n", told.stderr


async def test_a_trace_goes_on_inside_the_engine(dagger: DaggerEngine) -> None:
    """The header that hands the caller's trace on is only sent if somebody traces."""
    assert telemetry.headers() == {} or "traceparent" in telemetry.headers()
    told = elsewhere(
        "import json\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry import trace\n"
        "from holdfast import telemetry\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "with trace.get_tracer('t').start_as_current_span('outer') as span:\n"
        "    print(json.dumps([format(span.get_span_context().trace_id, '032x'), telemetry.headers()]))\n"
    )
    trace_id, headers = json.loads(told.stdout)
    assert trace_id in headers["traceparent"]


def test_doctor_says_what_holds_the_network(dagger: DaggerEngine) -> None:
    told = elsewhere("import sys; sys.argv[1:] = ['doctor', '--json']; from holdfast.cli import main; main()")
    notes = json.loads(told.stdout)["engines"]["dagger"]["notes"]
    assert notes["no network by the guest's filter"] == "holds"
    assert notes["no network by the engine's CNI"].startswith("not set up: runs have eth")  # the testbed's has a bridge
    assert notes["Dagger CLI"].endswith("v0.21.8")

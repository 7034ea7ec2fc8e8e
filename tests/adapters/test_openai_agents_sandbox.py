"""The sandbox client in the OpenAI Agents SDK's own runtime: its agents, its lifecycle, its errors."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from agents import RunConfig, Runner, ToolCallOutputItem
from agents.sandbox import (
    ExecTimeoutError,
    ExecTransportError,
    LocalSnapshotSpec,
    Manifest,
    SandboxAgent,
    SandboxRunConfig,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.entries import File
from agents.sandbox.session import SandboxSession
from agents.testing import ScriptedModel, assistant_message, function_call

import holdfast
from holdfast import errors
from holdfast.tools.adapters.openai_agents_sandbox import WORKFLOW, SandboxClient, SessionOptions
from tests.conformance import host

from .runaways import RUNAWAYS, left_after_cancelling, running

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)


@pytest.fixture
async def box(engine: str, mark: str) -> AsyncIterator[SandboxSession]:
    client = SandboxClient()
    session = await client.create(options=SessionOptions(env={"HF_MARK": mark}))
    async with session:
        yield session
    await client.delete(session)


def sessions() -> int:
    return sum(key.id == WORKFLOW for key, _ in holdfast.list_sessions(os.environ["HOLDFAST_ENGINE"]))


async def test_an_agent_works_in_a_sandbox_that_goes_with_its_run(engine: str) -> None:
    calls = [
        function_call("exec_command", {"cmd": "python3 sum.py > out; cat out; echo $WHO"}, call_id="1"),
        function_call("exec_command", {"cmd": "cat out; exit 3"}, call_id="2"),
        function_call("exec_command", {"cmd": "no\0thing"}, call_id="3"),
    ]
    agent = SandboxAgent(
        "tester",
        model=ScriptedModel([*([call] for call in calls), [assistant_message("done")]]),
        default_manifest=Manifest(
            entries={"sum.py": File(content=b"print(6 * 7)")}, environment={"value": {"WHO": "me"}}
        ),
    )
    quiet = RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(client=SandboxClient()))
    done = await Runner.run(agent, "go on", run_config=quiet)
    first, second, third = [str(item.output) for item in done.new_items if isinstance(item, ToolCallOutputItem)]
    assert done.final_output == "done"
    assert "42\nme\n" in first and "exited with code 0" in first
    assert "42\n" in second and "exited with code 3" in second
    assert "invalid_request" in third and "exited with code 125" in third
    assert await anyio.to_thread.run_sync(sessions) == 0


async def test_a_command_whose_time_is_over_leaves_no_process(box: SandboxSession, mark: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.until, lambda: running(mark))
        with pytest.raises(ExecTimeoutError):
            await box.exec(RUNAWAYS, timeout=3)
    assert not await host.gone(mark)
    assert (await box.exec("echo alive", timeout=60)).stdout == b"alive\n"


async def test_a_cancelled_command_leaves_no_process(box: SandboxSession, mark: str) -> None:
    assert not await left_after_cancelling(lambda: box.exec(RUNAWAYS), mark)
    assert (await box.exec("echo alive")).stdout == b"alive\n"


@only_local
async def test_an_agent_talks_to_a_program_that_goes_on(engine: str, mark: str) -> None:
    """And what it has left running ends with its run."""
    ask = "printf 'who? '; read name; echo hello $name; sleep 1000"
    calls = [
        ("exec_command", {"cmd": ask, "tty": True, "yield_time_ms": 300}),
        ("write_stdin", {"session_id": 1000, "chars": "me\n", "yield_time_ms": 300}),
        ("write_stdin", {"session_id": 1000, "chars": "\x03", "yield_time_ms": 5000}),
        ("write_stdin", {"session_id": 1000, "chars": ""}),
        ("exec_command", {"cmd": RUNAWAYS, "yield_time_ms": 1}),
        ("write_stdin", {"session_id": 1001, "chars": "me"}),
    ]
    steps = [[function_call(name, asked, call_id=f"c{at}")] for at, (name, asked) in enumerate(calls)]
    agent = SandboxAgent("tester", model=ScriptedModel([*steps, [assistant_message("done")]]))
    options = SessionOptions(env={"HF_MARK": mark})
    sandbox = SandboxRunConfig(client=SandboxClient(), options=options)
    done = await Runner.run(agent, "go on", run_config=RunConfig(tracing_disabled=True, sandbox=sandbox))
    said = [str(item.output) for item in done.new_items if isinstance(item, ToolCallOutputItem)]
    assert "session ID 1000" in said[0] and "who? " in said[0]
    assert "hello me" in said[1]
    assert "exited with code 130" in said[2]
    assert "write_stdin failed" in said[3]
    assert "session ID 1001" in said[4] and "stdin is not available" in said[5]
    assert not await host.gone(mark)


async def test_a_cancelled_start_leaves_no_process(box: SandboxSession, mark: str) -> None:
    assert not await left_after_cancelling(lambda: box.pty_exec_start(RUNAWAYS, yield_time_s=60), mark)


@only_local
async def test_a_program_that_goes_on_is_looked_at_until_it_ends(box: SandboxSession) -> None:
    begun = await box.pty_exec_start("echo é; sleep 1; echo 2 >&2; exit 7", yield_time_s=0.2)
    assert (begun.exit_code, begun.output) == (None, "é\n".encode())
    assert begun.process_id is not None
    ended = await box.pty_write_stdin(session_id=begun.process_id, chars="", yield_time_s=60)
    assert (ended.process_id, ended.exit_code, ended.output) == (None, 7, b"2\n")
    quick = await box.pty_exec_start("cat; echo 1", yield_time_s=60)
    assert (quick.process_id, quick.exit_code, quick.output) == (None, 0, b"1\n")
    short = await box.pty_exec_start("seq 100000", yield_time_s=60, max_output_tokens=10)
    assert (short.exit_code, short.output[:4], len(short.output) < 1000) == (0, b"1\n2\n", True)


@only_local
async def test_output_that_nobody_read_in_time_is_missed_aloud(box: SandboxSession) -> None:
    begun = await box.pty_exec_start("sleep 1; seq 3000000; touch over", yield_time_s=0.1)
    assert begun.process_id is not None
    await box.exec("until [ -e over ]; do sleep 0.05; done")
    rest = await box.pty_write_stdin(session_id=begun.process_id, chars="", yield_time_s=60)
    text = rest.output
    while rest.exit_code is None:
        rest = await box.pty_write_stdin(session_id=begun.process_id, chars="", yield_time_s=60)
        text += rest.output
    assert b"bytes of output are missing here" in text
    assert text.startswith(b"1\n2\n") and text.endswith(b"3000000\n")


@only_local
async def test_commands(box: SandboxSession) -> None:
    failed = await box.exec("echo 1; echo 2 >&2; exit 7")
    assert (failed.stdout, failed.stderr, failed.exit_code) == (b"1\n", b"2\n", 7)
    assert (await box.exec("kill -9 $$")).exit_code == 137
    assert (await box.exec("printf", "%s", "a b", shell=False)).stdout == b"a b"
    missing = await box.exec("no-such-program", shell=False)
    assert missing.exit_code == 127 and b"no-such-program" in missing.stderr


@only_local
async def test_too_much_output_is_cut_for_a_model_and_refused_to_the_sdk(box: SandboxSession) -> None:
    cut = await box.exec("seq 1000000")
    assert cut.stdout.startswith(b"1\n2\n") and cut.stdout.endswith(b"1000000\n") and b"truncated" in cut.stdout
    with pytest.raises(ExecTransportError, match="wrote more than"):
        await box.exec("seq", "3000000", shell=False)
    assert len((await box.exec("seq", "1000000", shell=False)).stdout) == 6888896


@only_local
async def test_files(box: SandboxSession) -> None:
    content = bytes(range(256)) * 5000
    await box.write(Path("deep/er/a b"), io.BytesIO(content))
    await box.write(Path("text"), io.StringIO("é"))  # the SDK's own clients take it
    assert (await box.read(Path("deep/er/a b"))).read() == content
    assert (await box.read(Path("/workspace/text"))).read() == "é".encode()
    assert await box.read_bounded(Path("deep/er/a b"), max_bytes=3) == b"\0\1\2"
    assert [entry.path for entry in await box.ls("deep")] == ["/workspace/deep/er"]
    await box.mv("text", "moved")
    await box.mkdir("more", parents=True)
    await box.rm("deep", recursive=True)
    assert sorted(entry.path for entry in await box.ls(".")) == ["/workspace/more", "/workspace/moved"]
    await box.apply_patch({"type": "create_file", "path": "new.txt", "diff": "+one\n+two\n"})
    assert (await box.read(Path("new.txt"))).read() == b"one\ntwo"


@only_local
async def test_what_is_wrong_with_a_file_is_an_error_of_theirs(box: SandboxSession) -> None:
    await box.exec("ln -s /etc/passwd out; mkdir folder; echo 1 > good")
    with pytest.raises(WorkspaceReadNotFoundError):
        await box.read(Path("missing"))
    with pytest.raises(WorkspaceReadNotFoundError):
        await box.read_bounded(Path("missing"), max_bytes=3)
    for path in ("out", "folder"):
        with pytest.raises(WorkspaceArchiveReadError):
            await box.read(Path(path))
    with pytest.raises(WorkspaceArchiveWriteError) as caught:
        await box.write(Path("folder"), io.BytesIO(b"1"))
    assert isinstance(caught.value.cause, errors.SandboxIsADirectory)
    assert (await box.read(Path("good"))).read() == b"1\n"


async def test_a_session_is_found_again_from_its_state_and_from_another_loop(engine: str) -> None:
    def begin() -> dict[str, object]:
        async def begun() -> dict[str, object]:
            client = SandboxClient()
            async with await client.create() as box:
                await box.exec("echo 42 > kept; echo 43 > /tmp/kept")
            return client.serialize_session_state(box.state)

        return anyio.run(begun)

    payload = await anyio.to_thread.run_sync(begin)
    client = SandboxClient()
    found = await client.resume(client.deserialize_session_state(payload))
    async with found:
        assert (await found.exec("cat kept /tmp/kept")).stdout == b"42\n43\n"
    await client.delete(found)
    assert not await found.running()
    await client.delete(found)  # again is fine


@only_local
async def test_a_session_that_is_gone_is_made_again_from_its_snapshot(engine: str, tmp_path: Path) -> None:
    client = SandboxClient()
    async with await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path)) as box:
        await box.exec("mkdir -p deep; echo 42 > deep/kept; ln -s deep/kept link; echo 43 > /tmp/lost")
    payload = client.serialize_session_state(box.state)
    await client.delete(box)
    again = await client.resume(client.deserialize_session_state(payload))
    async with again:
        assert (await again.exec("cat link")).stdout == b"42\n"
        assert (await again.exec("cat /tmp/lost")).exit_code == 1
    await client.delete(again)


@only_local
async def test_a_sandbox_that_went_away_is_told_to_the_model_and_raised_at_the_sdk(box: SandboxSession) -> None:
    begun = await box.pty_exec_start("sleep 1000", yield_time_s=0.1)
    assert begun.process_id is not None and await box.running()
    assert await anyio.to_thread.run_sync(lambda: holdfast.end_workflow(WORKFLOW, engine="local")) == 1
    answers = [
        await box.pty_write_stdin(session_id=begun.process_id, chars=""),
        await box.pty_exec_start("echo 1", yield_time_s=60),
    ]
    assert [answer.exit_code for answer in answers] == [125, 125]
    assert all(b'"error_code": "session_' in answer.output for answer in answers)
    told = await box.exec("echo 1")
    assert told.exit_code == 125 and b'"error_code": "session_' in told.stderr
    with pytest.raises(ExecTransportError):
        await box.exec("echo", "1", shell=False)
    with pytest.raises(WorkspaceArchiveReadError):
        await box.read(Path("any"))
    assert not await box.running()


@only_local
async def test_what_cannot_be_made_is_said_before_anything_is_made(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SandboxClient()
    with pytest.raises(errors.InvalidRequest, match="the workspace is /workspace"):
        await client.create(manifest=Manifest(root="/elsewhere"))
    with pytest.raises(errors.PolicyError):
        await client.create(options=SessionOptions(network=True))
    assert await anyio.to_thread.run_sync(sessions) == 0
    monkeypatch.setenv("HOLDFAST_CODE_WORKDIR", "/elsewhere")
    box = await client.create(manifest=Manifest())
    async with box:
        assert (await box.exec("pwd")).stdout == b"/elsewhere\n"
    await client.delete(box)

"""An agent's tools through the official MCP client, both transports, the newest protocol and the one before."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, TextContent
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from holdfast import ExecutionContext, aio
from holdfast.config import SandboxConfig
from holdfast.engines.fake import FakeCall, FakeEngine
from tests.conformance import host

from .mcp_host import HOLDFAST, PATIENCE, call, client_of, http_client, serving, started

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
local = pytest.mark.parametrize("engine", ["local"], indirect=True)
every_way = pytest.mark.parametrize("way", ["stdio-auto", "stdio-legacy", "http-auto", "http-legacy"])
VANISHING = str(Path(__file__).with_name("mcp_vanishing.py"))
RUNAWAY = "import subprocess; subprocess.run(['setsid', 'sleep', '1000'])"


async def running(mark: str) -> None:
    """Until a program of the sandbox is there: what shows later that it has gone would have seen it."""

    async def some() -> bool:
        return len(host.programs(mark)) > 1

    await host.until(some)


async def ended(mark: str) -> None:
    async def none() -> bool:
        return not host.processes(mark)

    await host.until(none)


@local
@every_way
async def test_tools_are_listed_and_called_and_only_a_mistake_is_an_error(engine: str, way: str) -> None:
    (expected,) = await aio.toolset(SandboxConfig(runtime="python"))
    async with client_of(way) as client:
        assert client.protocol_version == (
            LATEST_MODERN_VERSION if way.endswith("auto") else HANDSHAKE_PROTOCOL_VERSIONS[-1]
        )
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == (expected.name, expected.description)
        assert (tool.input_schema, tool.output_schema) == (expected.input_schema, expected.output_schema)
        answer = await client.call_tool("sandbox_run", {"code": "print('ü' * 3)", "args": ["x"]})
        assert isinstance(answer.structured_content, dict) and isinstance(answer.content[0], TextContent)
        assert (answer.is_error, answer.structured_content["stdout"]) == (False, "üüü\n")
        assert json.loads(answer.content[0].text) == answer.structured_content

        failed = await client.call_tool("sandbox_run", {"code": "raise SystemExit(3)"})
        assert (failed.is_error, failed.structured_content["ok"]) == (False, False)
        assert failed.structured_content["exit_code"] == 3
        late = await client.call_tool("sandbox_run", {"code": "while True: pass", "timeout_seconds": 1})
        assert (late.is_error, late.structured_content["end_cause"]) == (False, "timeout")
        assert late.structured_content["exit_code"] is None

        wrong = await client.call_tool("sandbox_run", {"cod": "print(1)"})
        assert (wrong.is_error, wrong.structured_content["error_code"]) == (True, "invalid_request")
        assert "did you mean code?" in wrong.structured_content["error"]
        assert wrong.structured_content["hint"] == "mend the arguments and call again"
        assert isinstance(wrong.content[0], TextContent)
        assert json.loads(wrong.content[0].text) == wrong.structured_content
        none = await client.call_tool("sandbox_run")
        assert (none.is_error, none.structured_content["error"]) == (True, "code is needed")
        odd = await client.call_tool("sandbox_run", {"code": ["print(1)"]})
        assert odd.is_error
        unknown = await client.call_tool("sandbox_delete_everything", {})
        assert (unknown.is_error, unknown.structured_content["error_code"]) == (True, "invalid_request")
        assert "there are: sandbox_run" in unknown.structured_content["error"]
        assert (await call(client, "sandbox_run", code="print(6 * 7)"))["stdout"] == "42\n"


@local
@pytest.mark.parametrize("way", ["stdio-auto", "http-legacy"])
async def test_a_long_output_arrives_whole_and_its_text_says_where_it_was_cut(engine: str, way: str) -> None:
    code = "import sys; print('\"' * 199999); print('\"' * 199999, file=sys.stderr)"
    async with client_of(way) as client:
        answer = await client.call_tool("sandbox_run", {"code": code})
        assert isinstance(answer.structured_content, dict) and isinstance(answer.content[0], TextContent)
        assert answer.structured_content["stderr"] == '"' * 199999 + "\n"
        text = json.loads(answer.content[0].text)
        assert text["stderr"].endswith("\n[...truncated at 20000 chars; the structured content has all of it...]")
        assert {**text, "stdout": "", "stderr": ""} == {**answer.structured_content, "stdout": "", "stderr": ""}


@pytest.mark.parametrize("way", ["stdio-auto", "http-auto"])
async def test_nine_tools_of_code_mode_answer_as_their_schemas_say(engine: str, way: str) -> None:
    async with client_of(way, "--mode", "code") as client:
        assert len((await client.list_tools()).tools) == 9
        opened = await call(client, "sandbox_open")
        assert (opened["created"], opened["engine"]) == (True, engine)
        box = opened["sandbox_id"]
        assert (await call(client, "sandbox_fs_write", path="d/a.py", contents="print(6 * 7)"))["size_bytes"] == 12
        assert (await call(client, "sandbox_exec", cmd=["python3", "d/a.py"], sandbox_id=box))["stdout"] == "42\n"
        started = await call(client, "sandbox_exec", command="echo begun; cat", stream=True)
        read = await call(client, "sandbox_exec_read", exec_id=started["exec_id"])
        assert (read["chunks"][0]["text"], read["next_seq"]) == ("begun\n", 6)
        assert (await call(client, "sandbox_exec_wait", exec_id=started["exec_id"]))["exit_code"] == 0
        assert (await call(client, "sandbox_fs_read", path="d/a.py"))["contents"] == "print(6 * 7)"
        listed = await call(client, "sandbox_fs_list", recursive=True)
        assert [entry["path"] for entry in listed["entries"]] == ["d", "d/a.py"]
        assert (await call(client, "sandbox_fs_delete", path="d", recursive=True))["ok"]
        missing = await client.call_tool("sandbox_fs_read", {"path": "d/a.py"})
        assert (missing.is_error, missing.structured_content["error_code"]) == (True, "not_found")
        assert (await call(client, "sandbox_close"))["closed"]


@local
@pytest.mark.parametrize("way", ["stdio-auto", "stdio-legacy", "http-legacy"])
async def test_a_call_tells_that_it_goes_on(engine: str, way: str) -> None:
    """The program ends when the second sign of progress has arrived: nothing here depends on how fast it is."""
    told: list[tuple[float, float | None, str | None]] = []
    async with client_of(way, "--mode", "code") as client:
        await call(client, "sandbox_open")

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message))
            if len(told) == 2:
                await call(client, "sandbox_fs_write", path="go", contents="")

        command = "while [ ! -e go ]; do sleep 0.05; done; echo went"
        answer = await client.call_tool("sandbox_exec", {"command": command}, progress_callback=on_progress)
        assert answer.structured_content["stdout"] == "went\n"
    assert [one[0] for one in told] == sorted({one[0] for one in told})  # it increases, as the protocol demands
    assert all(total is None and message and "sandbox_exec" in message for _, total, message in told)


@local
@every_way
async def test_a_cancelled_call_ends_in_the_sandbox_and_its_neighbour_goes_on(engine: str, way: str, mark: str) -> None:
    kept = f"hfkept{secrets.token_hex(8)}"
    async with client_of(way) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, client, "sandbox_run", code=RUNAWAY, env={"HF_MARK": kept}))
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel_when_running, scope, mark, kept)
            await call(client, "sandbox_run", code=RUNAWAY, env={"HF_MARK": mark})
        assert scope.cancelled_caught
        await ended(mark)
        assert len(host.programs(kept)) > 1
        assert (await call(client, "sandbox_run", code="print(1)"))["stdout"] == "1\n"
        tasks.cancel_scope.cancel()
    await ended(kept)


async def cancel_when_running(scope: anyio.CancelScope, *marks: str) -> None:
    for mark in marks:
        await running(mark)
    scope.cancel()


@local
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_vanishes_cancels_its_call_and_no_other(engine: str, mode: str, mark: str) -> None:
    kept = f"hfkept{secrets.token_hex(8)}"
    with serving() as served:
        async with http_client(served, mode) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(call, client, "sandbox_run", code=RUNAWAY, env={"HF_MARK": kept}))
            with started(sys.executable, VANISHING, served.url, mode, mark, token=served.token) as process:
                await running(mark)
                await running(kept)
                process.kill()
            await ended(mark)
            assert len(host.programs(kept)) > 1
            tasks.cancel_scope.cancel()
        await ended(kept)


@local
@pytest.mark.parametrize(
    ("words", "number"), [([], signal.SIGINT), (["--http", "--port", "0"], signal.SIGTERM)], ids=["stdio", "http"]
)
async def test_a_signal_ends_it_while_nobody_says_anything(
    engine: str, words: list[str], number: signal.Signals
) -> None:
    with started(HOLDFAST, "mcp", *words) as process:
        assert process.stdin and process.stdout and process.stderr
        if words:
            assert b"serving MCP" in process.stderr.readline()
        else:
            process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
        assert b"Traceback" not in process.stderr.read()


@local
@pytest.mark.parametrize("how", ["eof", "signal"])
async def test_its_end_leaves_no_program_and_no_session(engine: str, how: str, mark: str) -> None:
    """The fixture `engine` looks whether anything of a session is left."""
    with started(HOLDFAST, "mcp", "--mode", "code") as process:
        assert process.stdin and process.stdout and process.stderr
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        command = {"cmd": ["python3", "-c", RUNAWAY], "env": {"HF_MARK": mark}}
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": command}},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        await running(mark)
        if how == "eof":
            process.stdin.close()
        else:
            process.terminate()
        assert process.wait(PATIENCE) == (0 if how == "eof" else 128 + signal.SIGTERM)
        assert b"Traceback" not in process.stderr.read()
    await ended(mark)


@local
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_its_end_over_http_ends_the_calls_that_are_under_way(engine: str, mode: str, mark: str) -> None:
    with serving() as served:
        async with http_client(served, mode) as client, anyio.create_task_group() as tasks:

            async def lost() -> None:
                with pytest.raises(MCPError):
                    await call(client, "sandbox_run", code=RUNAWAY, env={"HF_MARK": mark})

            tasks.start_soon(lost)
            await running(mark)
            served.process.terminate()
            await ended(mark)
        assert await anyio.to_thread.run_sync(served.process.wait, PATIENCE) == 128 + signal.SIGTERM
        assert served.process.stderr
        assert all(line.startswith("holdfast: ") for line in served.process.stderr.read().splitlines())


@local
async def test_sessions_over_http_are_private_and_end_with_their_client(engine: str, mark: str) -> None:
    with serving("--mode", "code") as served:
        async with http_client(served, "auto") as one, http_client(served, "auto") as other:
            assert one.protocol_version == HANDSHAKE_PROTOCOL_VERSIONS[-1]  # the newest that has sessions
            await call(one, "sandbox_fs_write", path="mine", contents="x")
            assert [entry["path"] for entry in (await call(one, "sandbox_fs_list"))["entries"]] == ["mine"]
            assert (await call(other, "sandbox_fs_list"))["entries"] == []
            command = {"command": "sleep 1000", "env": {"HF_MARK": mark}, "stream": True}
            await call(other, "sandbox_exec", **command)
            async with http_client(served, "legacy") as third:
                session = (await call(third, "sandbox_open"))["sandbox_id"]
                assert host.processes(session)
            await ended(session)
            assert host.programs(mark)
        await ended(mark)


@local
async def test_clients_of_a_workflow_share_its_session(engine: str) -> None:
    with serving("--mode", "code", "--workflow", f"wf-{secrets.token_hex(4)}") as served:
        async with http_client(served, "auto") as one:
            await call(one, "sandbox_fs_write", path="ours", contents="x")
            async with http_client(served, "auto") as other:
                assert [entry["path"] for entry in (await call(other, "sandbox_fs_list"))["entries"]] == ["ours"]
                # Which one was opened last is each client's own.
                assert (await call(other, "sandbox_open", session_key="beside"))["created"]
                assert (await call(other, "sandbox_fs_list"))["entries"] == []
                assert [entry["path"] for entry in (await call(one, "sandbox_fs_list"))["entries"]] == ["ours"]
                await call(other, "sandbox_close")
            assert (await call(one, "sandbox_fs_read", path="ours"))["contents"] == "x"
            await call(one, "sandbox_close")


@local
async def test_code_mode_over_http_refuses_a_protocol_without_sessions(engine: str) -> None:
    with serving("--mode", "code") as served:
        async with http_client(served, LATEST_MODERN_VERSION) as client:
            with pytest.raises(MCPError) as refused:
                await client.list_tools()
        assert refused.value.code == UNSUPPORTED_PROTOCOL_VERSION
        assert refused.value.error.data["supported"] == list(HANDSHAKE_PROTOCOL_VERSIONS)
        async with http_client(served, "auto") as client:
            assert len((await client.list_tools()).tools) == 9


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_with_the_fake_engine_is_served_in_process(mode: str) -> None:
    with FakeEngine() as fake:

        @fake.on_code
        def answer(asked: FakeCall) -> None:
            asked.stdout.write(f"ran {asked.code}")

        context = ExecutionContext(agent_run_id=f"run-{secrets.token_hex(4)}")
        tools = await aio.toolset(SandboxConfig(), context=context, engine="fake")
        async with tools, Client(tools.as_mcp(), mode=mode) as client:
            assert (await call(client, "sandbox_run", code="x"))["stdout"] == "ran x"
        tools = await aio.toolset(SandboxConfig(mode="code"), context=context, engine="fake")
        async with tools, Client(tools.as_mcp(), mode=mode) as client:
            await call(client, "sandbox_fs_write", path="a", contents="1")
            assert (await call(client, "sandbox_fs_read", path="a"))["contents"] == "1"
            await call(client, "sandbox_close")

"""The tools as a model meets them: schemas, results, refusals; on the engine `fake`, so that every word is ours."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

import holdfast
from holdfast import ExecutionContext, Toolset, aio, errors
from holdfast.config import SandboxConfig, SandboxLimits
from holdfast.engines.fake import FakeCall, FakeEngine
from holdfast.tools.adapters import anthropic, openai

pytestmark = pytest.mark.anyio

CODE_TOOLS = [
    *("sandbox_open", "sandbox_exec", "sandbox_exec_read", "sandbox_exec_wait", "sandbox_fs_write"),
    *("sandbox_fs_read", "sandbox_fs_list", "sandbox_fs_delete", "sandbox_close"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    monkeypatch.setenv("HOLDFAST_ENGINE", "fake")
    with FakeEngine() as engine:

        @engine.program("python3")
        async def python(call: FakeCall) -> int:
            code = call.code or ""
            call.files.write("out/result.json", b"{}")
            call.stdout.write(f"{code} {' '.join(call.argv[2:])} {sorted(call.env.items())}")
            call.stdout.write(await call.stdin.read())
            return 3 if "fail" in code else 0

        @engine.program("flood")
        def flood(call: FakeCall) -> None:
            call.stdout.write(b"a" * 6000 + b"z" * 6000)

        @engine.program("umlauts")
        def umlauts(call: FakeCall) -> None:
            call.stdout.write("ü" * 6000)

        @engine.program("halves")
        async def halves(call: FakeCall) -> None:
            for piece in (b"a\xc3", b"\xbc hunter2-", b"hunter2."):
                call.stdout.write(piece)
                await call.sleep(0.05)

        @engine.program("deluge")
        def deluge(call: FakeCall) -> None:
            call.stdout.write(b"d" * 400_000)

        @engine.program("litter")
        def litter(call: FakeCall) -> None:
            for number in range(400):
                call.files.write(f"{number:04}{'n' * 246}", b"")

        @engine.program("slow")
        async def slow(call: FakeCall) -> None:
            call.stdout.write("begun")
            await call.sleep(3600)

        @engine.program("env")
        def env(call: FakeCall) -> None:
            call.stdout.write(str(call.env))

        @engine.program("echo hi | cat")
        def echo(call: FakeCall) -> None:
            call.stdout.write(f"shell: {call.shell}")

        yield engine


def prompt(folder: Path, sandbox: str) -> Path:
    path = folder / "agent.prompt"
    path.write_text(f"---\nmodel: any\n{sandbox}\n---\nYou are an agent.\n")
    return path


@pytest.fixture
async def code() -> AsyncIterator[Toolset]:
    context = ExecutionContext(workflow_run_id="wf_1", agent_run_id="r1")
    async with await aio.toolset(SandboxConfig(mode="code", runtime="python"), context=context) as tools:
        yield tools
        await tools.call("sandbox_close")


def checked(tools: Toolset, name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result, if it is plain data and as the tool's own schema says."""
    jsonschema.validate(json.loads(json.dumps(result)), tools[name].output_schema)
    return result


# --- from a file to tools


async def test_one_line_of_frontmatter_gives_one_tool(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    assert [tool.name for tool in tools] == ["sandbox_run"]
    assert "engine fake" in tools[0].description
    assert "512 MB memory" in tools[0].description


async def test_mode_code_gives_nine_tools(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox:\n  mode: code"))
    assert [tool.name for tool in tools] == CODE_TOOLS


async def test_no_sandbox_no_tools(tmp_path: Path) -> None:
    assert len(await aio.toolset(prompt(tmp_path, "other: x"))) == 0


async def test_what_the_operator_does_not_allow_gives_no_tools(tmp_path: Path) -> None:
    with pytest.raises(errors.PolicyError, match="STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"):
        await aio.toolset(prompt(tmp_path, "sandbox:\n  runtime: python\n  allow_network: true"))
    with pytest.raises(errors.EngineUnavailable, match="fake cannot do: packages"):
        await aio.toolset(prompt(tmp_path, "sandbox:\n  runtime: python\n  pip_packages: [six]"))


def test_the_blocking_name(tmp_path: Path) -> None:
    tools = holdfast.toolset(prompt(tmp_path, "sandbox: python"))
    assert tools["sandbox_run"].call_blocking({"code": "print(1)"})["ok"] is True


async def test_every_schema_is_one(code: Toolset, tmp_path: Path) -> None:
    for tool in [*code, *await aio.toolset(prompt(tmp_path, "sandbox: python"))]:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.input_schema["type"] == "object"
        assert "Example: {" in tool.description
        assert len(tool.description) < 600
        for name, found in tool.input_schema["properties"].items():
            assert found.get("description"), f"{tool.name}.{name} says nothing"


# --- sandbox_run: seeds/003, sections 3.2, 3.4 and 7.1


async def test_the_inputs_of_sandbox_run_are_those_of_the_seeds(tmp_path: Path) -> None:
    schema = (await aio.toolset(prompt(tmp_path, "sandbox: python")))[0].input_schema
    properties = schema["properties"]
    assert schema["required"] == ["code"]
    assert {"runtime", "code", "args", "env", "files", "timeout_seconds"} <= set(properties)
    assert properties["runtime"]["enum"] == ["python", "node", "bash"]
    assert properties["code"]["type"] == "string"
    assert (properties["args"]["type"], properties["args"]["items"]) == ("array", {"type": "string"})
    assert (properties["env"]["type"], properties["env"]["additionalProperties"]) == ("object", {"type": "string"})
    assert properties["files"]["additionalProperties"] == {"type": "string"}
    assert [properties["timeout_seconds"][key] for key in ("type", "minimum", "maximum")] == ["integer", 1, 3600]


async def test_the_outputs_of_sandbox_run_are_those_of_the_seeds(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox:\n  runtime: python\n  timeout_seconds: 300"))
    result = checked(
        tools,
        "sandbox_run",
        await tools.call(
            "sandbox_run",
            {
                "code": "print(1)",
                "args": ["a", "b"],
                "env": {"K": "v"},
                "files": {"in.txt": "x"},
                "stdin": "typed",
                "artifacts": ["out/*"],
            },
        ),
    )
    assert (result["ok"], result["runtime"], result["exit_code"], result["stderr"]) == (True, "python", 0, "")
    assert "print(1) a b" in result["stdout"]
    assert "('K', 'v')" in result["stdout"]
    assert result["stdout"].endswith("typed")
    assert isinstance(result["duration_ms"], int)
    artifact = {"path": "out/result.json", "size_bytes": 2, "content_base64": base64.b64encode(b"{}").decode()}
    assert result["artifacts"] == [artifact]
    assert (result["limits"]["timeout_seconds"], result["limits"]["max_stdout_bytes"]) == (300, 200_000)


async def test_a_program_that_fails_is_a_result(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    result = checked(tools, "sandbox_run", await tools.call("sandbox_run", {"code": "fail"}))
    assert (result["ok"], result["exit_code"]) == (False, 3)
    assert "error" not in result


async def test_a_timeout_above_the_operators_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_TIMEOUT_SECONDS", "60")
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    result = await tools.call("sandbox_run", {"code": "1", "timeout_seconds": 600})
    assert result["limits"]["timeout_seconds"] == 60


async def test_what_was_cut_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_STDOUT_BYTES", "1000")
    monkeypatch.setenv("HOLDFAST_MAX_TIMEOUT_SECONDS", "60")
    asked = "timeout_seconds: 600, max_stdout_bytes: 5000, limits: {memory_mb: 99999}"
    (tool,) = await aio.toolset(prompt(tmp_path, f"sandbox: {{runtime: python, {asked}}}"))
    result = await tool.call({"code": "1"})
    cut = {name: (row["asked"], row["allowed"], row["effective"]) for name, row in result["limits"]["clamped"].items()}
    assert cut == {
        "timeout_seconds": (600, 60, 60),
        "max_stdout_bytes": (5000, 1000, 1000),
        "memory_mb": (99999, 8192, 8192),
    }
    assert (
        "clamped" not in (await (await aio.toolset(SandboxConfig(runtime="python")))[0].call({"code": "1"}))["limits"]
    )
    config = SandboxConfig(mode="code", limits=SandboxLimits(memory_mb=99999))
    async with await aio.toolset(config) as tools:
        opened = await tools.call("sandbox_open")
        assert opened["limits"]["clamped"]["memory_mb"]["effective"] == opened["limits"]["memory_mb"] == 8192
        run = await tools.call("sandbox_exec", {"cmd": ["python3"], "timeout_seconds": 600})
        assert (run["limits"]["timeout_seconds"], run["limits"]["clamped"]["timeout_seconds"]["asked"]) == (60, 600)
        run = await tools.call("sandbox_exec", {"cmd": ["python3"], "timeout_seconds": 6})
        assert run["limits"] == {"timeout_seconds": 6, "max_stdout_bytes": 1000, "max_stderr_bytes": 200_000}


async def test_engine_and_limits_are_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_TIMEOUT_SECONDS", "60")
    monkeypatch.setenv("STATION_SANDBOX_MAX_STDOUT_BYTES", "1000")
    limits = SandboxLimits(memory_mb=64, workspace_mb=5)
    configs = SandboxConfig(runtime="python", limits=limits), SandboxConfig(mode="code", limits=limits)
    for config, name in zip(configs, ("sandbox_run", "sandbox_open"), strict=True):
        told = (await aio.toolset(config))[name].description
        for part in ("engine fake", "no network", "60 s by default, 60 s at most", "64 MB memory", "5 MB disk"):
            assert part in told, (name, part)
    alone, together = "yours alone", "shared by the agents of this workflow"
    workflow = ExecutionContext(workflow_run_id="wf")
    for session, context, said in (
        (None, workflow, together),
        ("custom", workflow, together),
        ("isolated", workflow, alone),
        (None, ExecutionContext(agent_run_id="r"), alone),
    ):
        config = SandboxConfig(mode="code", session=session)
        assert said in (await aio.toolset(config, context=context))["sandbox_open"].description
    assert "1000 bytes" in (await aio.toolset(SandboxConfig(mode="code")))["sandbox_exec"].description
    assert "1000 bytes" in (await aio.toolset(SandboxConfig(runtime="python")))["sandbox_run"].description


# --- arguments that are wrong


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "code is needed"),
        ({"code": ""}, "no code"),
        ({"code": 5}, "code"),
        ({"code": "1", "cod": "2"}, "did you mean code?"),
        ({"code": "1", "timeout_seconds": 0}, "timeout_seconds: must be at least 1"),
        ({"code": "1", "timeout_seconds": 3601}, "timeout_seconds"),
        ({"code": "1", "runtime": "ruby"}, "runtime"),
        ({"code": "1", "files": {"../x": ""}}, "outside /work"),
        ({"code": "1", "args": ["a\0b"]}, "NUL"),
        ({"code": "\ud800"}, "cannot be encoded"),
    ],
)
async def test_a_wrong_call_is_answered_and_can_be_mended(tmp_path: Path, arguments: Any, says: str) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    result = checked(tools, "sandbox_run", await tools.call("sandbox_run", arguments))
    assert result["ok"] is False
    assert says in result["error"]
    assert result["error_code"] in ("invalid_request", "path_not_allowed")
    assert result["hint"]


DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]
ODD: list[Any] = [
    *(None, True, 0, -1, 2**63, 10**5000, 1.5, math.nan, math.inf, -math.inf),
    *("", "\0", "a\0b", "\ud800", "x" * 100_000, "../x", "/etc/passwd", "=", "💥"),
    *(DEEP, {}, {"\ud800": "\ud800"}, {"a": {"b": 1}}, {1: 2}, {"": ""}, {"A=B": "x"}, {"K": "\0"}, {"x" * 100_000: 1}),
    *([None], ["\ud800"], [""], ["a\0"], [["a"] * 1000] * 1000, b"\xff", object(), {1, 2}),
]
NEEDED = {"code": "1", "path": "p", "exec_id": "x1", "cmd": ["python3"], "contents": "c"}


@pytest.mark.parametrize("mode", ["compute", "code"])
async def test_no_arguments_are_more_than_a_refusal(mode: Any) -> None:
    """Whatever a model or its framework sends, it gets back a result that is bounded and can be sent anywhere."""
    async with await aio.toolset(SandboxConfig(mode=mode, runtime="python")) as tools:
        for tool in tools:
            names = [*tool.input.model_fields, *tool.input.other_names]
            good = {name: value for name, value in NEEDED.items() if name in names}
            calls: list[Any] = [{**good, name: value} for name in names for value in ODD]
            calls += [value for value in ODD if value is not None]
            calls += [{**good, key: 1} for key in (1, None, "x" * 100_000, "\ud800", "\0", (1, 2))]
            for arguments in calls:
                result = await tool.call(arguments)
                told = json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
                assert len(told) < 300_000
                assert len(result.get("error", "")) < 5000
        for name in (*ODD, "sandbox"):
            result = await tools.call(name)
            assert (result["ok"], result["error_code"]) == (False, "invalid_request")
            assert len(json.dumps(result, ensure_ascii=False).encode()) < 1000


async def test_a_tool_that_does_not_exist(code: Toolset) -> None:
    result = await code.call("sandbox_rum", {})
    assert (result["ok"], result["error_code"]) == (False, "invalid_request")
    assert "sandbox_exec" in result["error"]


# --- code mode: seeds/001 and seeds/002, section 4.2

PRD: dict[str, tuple[set[str], set[str]]] = {
    "sandbox_open": ({"session_key"}, {"sandbox_id", "image", "workdir", "created"}),
    "sandbox_exec": (
        {"sandbox_id", "cmd", "cwd", "env", "timeout_seconds", "stream"},
        {"exec_id", "exit_code", "stdout", "stderr", "status"},
    ),
    "sandbox_exec_read": ({"sandbox_id", "exec_id", "since_seq", "max_chunks"}, {"chunks", "done"}),
    "sandbox_exec_wait": ({"sandbox_id", "exec_id", "timeout_seconds"}, {"done", "exit_code"}),
    "sandbox_fs_write": (
        {"sandbox_id", "path", "contents", "contents_b64", "mode", "overwrite"},
        {"ok", "path"},
    ),
    "sandbox_fs_read": (
        {"sandbox_id", "path", "max_bytes"},
        {"contents", "contents_b64", "truncated", "size_bytes"},
    ),
    "sandbox_fs_list": ({"sandbox_id", "path", "recursive"}, {"entries"}),
    "sandbox_fs_delete": ({"sandbox_id", "path", "recursive"}, {"ok", "deleted"}),
    "sandbox_close": ({"sandbox_id", "delete_workspace"}, {"ok"}),
}
OVERVIEW: dict[str, tuple[set[str], set[str]]] = {
    "sandbox_open": ({"image"}, {"session_id", "image", "workdir", "status"}),
    "sandbox_exec": (
        {"command", "timeout_seconds", "workdir"},
        {"exit_code", "stdout", "stderr", "duration_ms"},
    ),
    "sandbox_fs_write": ({"path", "content", "encoding"}, {"path", "size_bytes"}),
    "sandbox_fs_read": ({"path", "encoding"}, {"path", "size_bytes"}),
    "sandbox_fs_list": ({"path", "recursive"}, {"entries"}),
    "sandbox_fs_delete": ({"path", "recursive"}, {"deleted", "path"}),
    "sandbox_close": (set(), {"closed", "session_id"}),
}


@pytest.mark.parametrize("document", [PRD, OVERVIEW], ids=["PRD", "overview"])
async def test_the_fields_of_the_nine_tools_are_those_of_the_seeds(
    code: Toolset, document: dict[str, tuple[set[str], set[str]]]
) -> None:
    for name, (inputs, outputs) in document.items():
        tool = code[name]
        assert inputs <= {*tool.input_schema["properties"], *tool.input.other_names}, name
        assert outputs <= set(tool.output_schema["properties"]), name
    listed = code["sandbox_fs_list"].output_schema["properties"]["entries"]["items"]["properties"]
    assert {"path", "type", "size", "mode", "mtime_unix"} == set(listed)
    chunk = code["sandbox_exec_read"].output_schema["properties"]["chunks"]["items"]["properties"]
    assert {"seq", "stream", "text"} == set(chunk)


async def test_the_overviews_names_are_taken_and_not_published(code: Toolset) -> None:
    for name, other in (("sandbox_exec", "workdir"), ("sandbox_fs_write", "content")):
        assert other not in code[name].input_schema["properties"]


@pytest.mark.parametrize("session", [None, "default", "workflow", "isolated", "agent", "custom"])
async def test_sessions_by_the_words_of_the_seeds(session: str | None) -> None:
    """default or workflow: of the workflow; isolated or agent: the agent's own; any other word: a name within it."""
    who = ExecutionContext(workflow_run_id="wf_s", agent_run_id="r_s")
    async with await aio.toolset(SandboxConfig(mode="code", session=session), context=who) as tools:
        opened = await tools.call("sandbox_open")
        await tools.call("sandbox_close")
    own = {"isolated": "agent/r_s/default", "agent": "agent/r_s/default", "custom": "workflow/wf_s/custom"}
    assert opened["session_id"] == own.get(str(session), "workflow/wf_s/default")


async def test_an_agent_without_a_workflow_has_a_session_of_its_own() -> None:
    async with await aio.toolset(SandboxConfig(mode="code"), context=ExecutionContext(agent_run_id="r_t")) as tools:
        assert (await tools.call("sandbox_open"))["session_id"] == "agent/r_t/default"
        await tools.call("sandbox_close")


async def test_open_is_idempotent(code: Toolset) -> None:
    first = checked(code, "sandbox_open", await code.call("sandbox_open"))
    again = await code.call("sandbox_open")
    assert (first["created"], again["created"]) == (True, False)
    assert first["sandbox_id"] == again["sandbox_id"]
    assert {"sandbox_id", "session_id", "image", "workdir", "created", "status"} <= set(first)
    assert (first["workdir"], first["status"], first["session_id"]) == ("/workspace", "ready", "workflow/wf_1/default")


async def test_agents_of_a_workflow_share_and_others_do_not(code: Toolset) -> None:
    await code.call("sandbox_fs_write", {"path": "a", "contents": "x"})

    async def sees(**ids: str) -> bool:
        config = SandboxConfig(mode="code", runtime="python")
        async with await aio.toolset(config, context=ExecutionContext(**ids)) as other:
            found = await other.call("sandbox_fs_list")
            if "wf_1" not in ids.values():
                await other.call("sandbox_close")
            return [entry["path"] for entry in found["entries"]] == ["a"]

    assert await sees(workflow_run_id="wf_1", agent_run_id="r2")
    assert not await sees(workflow_run_id="wf_2")
    assert not await sees(agent_run_id="r1")
    assert not await sees()


@pytest.mark.parametrize(
    ("session", "ids", "key"),
    [
        (None, {"workflow": "W", "agent": "A"}, "workflow/W/default"),
        ("default", {"workflow": "W", "agent": "A"}, "workflow/W/default"),
        ("workflow", {"workflow": "W"}, "workflow/W/default"),
        ("build", {"workflow": "W", "agent": "A"}, "workflow/W/build"),
        ("agent", {"workflow": "W", "agent": "A"}, "agent/A/default"),
        ("isolated", {"workflow": "W", "agent": "A"}, "agent/A/default"),
        # no workflow: there is nobody to share with, whatever the author wrote
        (None, {"agent": "A"}, "agent/A/default"),
        ("workflow", {"agent": "A"}, "agent/A/default"),
        ("default", {"agent": "A"}, "agent/A/default"),
        ("isolated", {"agent": "A"}, "agent/A/default"),
        ("build", {"agent": "A"}, "agent/A/build"),
        (None, {}, "private"),
        ("workflow", {}, "private"),
        ("default", {}, "private"),
        ("isolated", {}, "private"),
        ("build", {}, "custom/build/default"),
    ],
)
async def test_whose_session_it_is(session: str | None, ids: dict[str, str], key: str) -> None:
    context = ExecutionContext(workflow_run_id=ids.get("workflow"), agent_run_id=ids.get("agent"))
    async with await aio.toolset(SandboxConfig(mode="code", session=session), context=context) as tools:
        opened = await tools.call("sandbox_open")
        await tools.call("sandbox_close")
    assert opened["session_id"] == key or (key == "private" and opened["session_id"].startswith("private/")), opened


async def test_an_isolated_session_in_a_workflow_needs_an_agent() -> None:
    context = ExecutionContext(workflow_run_id="W")
    async with await aio.toolset(SandboxConfig(mode="code", session="isolated"), context=context) as tools:
        refused = await tools.call("sandbox_open")
    assert (refused["ok"], refused["error_code"]) == (False, "invalid_request")


async def test_another_session_of_the_workflow(code: Toolset) -> None:
    default = await code.call("sandbox_open")
    other = await code.call("sandbox_open", {"session_key": "scratch"})
    assert default["sandbox_id"] != other["sandbox_id"]
    await code.call("sandbox_fs_write", {"sandbox_id": other["sandbox_id"], "path": "b", "contents": ""})
    listed = await code.call("sandbox_fs_list", {"sandbox_id": default["sandbox_id"]})
    assert listed["entries"] == []
    assert (await code.call("sandbox_close", {"sandbox_id": other["sandbox_id"]}))["closed"] is True
    await code.call("sandbox_open")


async def test_exec_by_both_spellings(code: Toolset) -> None:
    await code.call("sandbox_fs_write", {"path": "main.py", "contents": "print(1)"})
    listed = checked(code, "sandbox_exec", await code.call("sandbox_exec", {"cmd": ["python3", "main.py", "x"]}))
    assert (listed["exit_code"], listed["status"], listed["end_cause"]) == (0, "completed", "completed")
    assert listed["stdout"].startswith("print(1) x")
    assert listed["exec_id"]
    line = await code.call("sandbox_exec", {"command": "echo hi | cat", "workdir": "."})
    assert line["stdout"] == "shell: echo hi | cat"
    both = await code.call("sandbox_exec", {"command": "x", "cmd": ["x"]})
    assert (both["error_code"], "not both" in both["error"]) == ("invalid_request", True)
    twice = await code.call("sandbox_exec", {"command": "x", "cwd": ".", "workdir": "."})
    assert "two names for one thing" in twice["error"]
    assert (await code.call("sandbox_exec", {"cmd": []}))["error_code"] == "invalid_request"
    missing = await code.call("sandbox_exec", {"cmd": ["nosuch"]})
    assert (missing["error_code"], missing["reason"]) == ("command_not_found", "EXEC_FAILED")


async def test_a_timeout_has_the_name_of_the_seeds(code: Toolset) -> None:
    result = checked(code, "sandbox_exec", await code.call("sandbox_exec", {"cmd": ["slow"], "timeout_seconds": 1}))
    assert (result["end_cause"], result["exit_code"], result["error_code"]) == ("timeout", None, "COMMAND_TIMEOUT")
    assert result["stdout"] == "begun"


async def test_streaming_is_polled(code: Toolset) -> None:
    started = await code.call("sandbox_exec", {"cmd": ["slow"], "stream": True})
    assert (started["status"], started["ok"]) == ("running", True)
    exec_id = started["exec_id"]
    read = checked(code, "sandbox_exec_read", await code.call("sandbox_exec_read", {"exec_id": exec_id}))
    assert (read["chunks"], read["done"]) == ([{"seq": 0, "stream": "stdout", "text": "begun"}], False)
    again = await code.call("sandbox_exec_read", {"exec_id": exec_id, "since_seq": read["next_seq"]})
    assert again["chunks"] == []
    waited = checked(
        code, "sandbox_exec_wait", await code.call("sandbox_exec_wait", {"exec_id": exec_id, "timeout_seconds": 1})
    )
    assert waited["done"] is False
    finished = await code.call("sandbox_exec", {"cmd": ["flood"], "stream": True})
    done = await code.call("sandbox_exec_wait", {"exec_id": finished["exec_id"]})
    assert (done["done"], done["exit_code"]) == (True, 0)
    assert (await code.call("sandbox_exec_read", {"exec_id": "x999"}))["error_code"] == "exec_not_found"


async def test_output_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SandboxConfig(mode="code", runtime="python", max_stdout_bytes=1000)
    async with await aio.toolset(config) as tools:
        result = await tools.call("sandbox_exec", {"cmd": ["flood"]})
    assert (result["truncated"], result["stdout_total_bytes"]) == (True, 12_000)
    assert result["stdout"] == "a" * 500 + "\n[...truncated at 1000 chars...]\n" + "z" * 500


async def test_the_marker_counts_characters_and_the_rest_bytes() -> None:
    config = SandboxConfig(mode="code", runtime="python", max_stdout_bytes=1001)
    async with await aio.toolset(config) as tools:
        result = await tools.call("sandbox_exec", {"cmd": ["umlauts"]})
    head, marker, tail = result["stdout"].partition("\n[...truncated at 500 chars...]\n")
    assert (len(head) + len(tail), bool(marker), set(head + tail)) == (500, True, {"ü"}), "and no half character"
    assert result["stdout_total_bytes"] == 12_000


async def test_what_is_read_while_it_is_written_has_no_half_characters_and_no_half_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    monkeypatch.setenv("HOLDFAST_ALLOWED_SECRETS", "API_TOKEN")
    async with await aio.toolset(SandboxConfig(mode="code", secrets=("API_TOKEN",))) as tools:
        text = ""
        read: dict[str, Any] = {"next_seq": 0, "done": False}
        exec_id = (await tools.call("sandbox_exec", {"cmd": ["halves"], "stream": True}))["exec_id"]
        while not read["done"]:
            read = await tools.call("sandbox_exec_read", {"exec_id": exec_id, "since_seq": read["next_seq"]})
            text += "".join(chunk["text"] for chunk in read["chunks"])
    assert text == "aü ***."


async def test_reads_and_lists_are_bounded(code: Toolset) -> None:
    exec_id = (await code.call("sandbox_exec", {"cmd": ["deluge"], "stream": True}))["exec_id"]
    await code.call("sandbox_exec_wait", {"exec_id": exec_id})
    total = 0
    read: dict[str, Any] = {"next_seq": 0, "done": False}
    while not read["done"]:
        read = await code.call("sandbox_exec_read", {"exec_id": exec_id, "since_seq": read["next_seq"]})
        size = sum(len(chunk["text"]) for chunk in read["chunks"])
        assert size <= 64 << 10
        total += size
    assert total > 150_000, "and all that is kept comes piece by piece"
    await code.call("sandbox_exec", {"cmd": ["litter"]})
    listed = await code.call("sandbox_fs_list")
    assert listed["truncated"] is True
    assert 200 < len(listed["entries"]) < 300
    assert len(json.dumps(listed)) < 100_000
    assert (await code.call("sandbox_fs_read", {"path": "a", "max_bytes": 5 << 20}))["error_code"] == "invalid_request"


async def test_an_error_is_bounded(code: Toolset) -> None:
    result = await code.call("sandbox_fs_read", {"path": "x/" * 50_000})
    assert (result["ok"], len(result["error"]) < 5000) == (False, True)


async def test_files_by_both_spellings(code: Toolset) -> None:
    given = {"path": "d/a.txt", "contents": "ü", "mode": "0600"}
    wrote = checked(code, "sandbox_fs_write", await code.call("sandbox_fs_write", given))
    assert wrote == {"ok": True, "path": "/workspace/d/a.txt", "size_bytes": 2}
    read = checked(code, "sandbox_fs_read", await code.call("sandbox_fs_read", {"path": "d/a.txt"}))
    assert (read["contents"], read["truncated"], read["size_bytes"]) == ("ü", False, 2)
    raw = base64.b64encode(b"\xff\x00").decode()
    for arguments in ({"contents_b64": raw}, {"content": raw, "encoding": "base64"}):
        await code.call("sandbox_fs_write", {"path": "bin", **arguments})
        read = await code.call("sandbox_fs_read", {"path": "bin"})
        assert (read.get("contents"), read["contents_b64"]) == (None, raw)
    as_bytes = await code.call("sandbox_fs_read", {"path": "d/a.txt", "encoding": "base64"})
    assert base64.b64decode(as_bytes["contents_b64"]) == "ü".encode()
    cut = await code.call("sandbox_fs_read", {"path": "d/a.txt", "max_bytes": 1})
    assert (cut["contents"], cut["truncated"], cut["size_bytes"]) == ("", True, 2)
    listed = checked(code, "sandbox_fs_list", await code.call("sandbox_fs_list", {"path": ".", "recursive": True}))
    found = {entry["path"]: entry for entry in listed["entries"]}
    assert (found["d"]["type"], found["d/a.txt"]["type"]) == ("dir", "file")
    assert (found["d/a.txt"]["size"], found["d/a.txt"]["mode"]) == (2, "0600")
    assert found["d/a.txt"]["mtime_unix"] >= 0
    refused = await code.call("sandbox_fs_write", {"path": "bin", "contents": "", "overwrite": False})
    assert (refused["error_code"], "overwrite" in refused["hint"]) == ("already_exists", True)
    both = await code.call("sandbox_fs_write", {"path": "x", "contents": "", "contents_b64": ""})
    assert both["error_code"] == "invalid_request"
    folder = await code.call("sandbox_fs_delete", {"path": "d"})
    assert (folder["error_code"], "recursive" in folder["hint"]) == ("directory_not_empty", True)
    gone = checked(code, "sandbox_fs_delete", await code.call("sandbox_fs_delete", {"path": "d", "recursive": True}))
    assert (gone["deleted"], gone["ok"]) == ("/workspace/d", True)


async def test_close_ends_it_for_everybody(code: Toolset) -> None:
    opened = await code.call("sandbox_open")
    closed = checked(code, "sandbox_close", await code.call("sandbox_close"))
    assert closed == {"ok": True, "closed": True, "session_id": opened["session_id"]}
    gone = await code.call("sandbox_exec", {"sandbox_id": opened["sandbox_id"], "cmd": ["env"]})
    assert (gone["ok"], gone["error_code"]) == (False, "session_not_found")
    assert "sandbox_open" in gone["hint"]
    assert (await code.call("sandbox_open"))["created"] is True


# --- secrets


async def test_secrets_are_given_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    monkeypatch.setenv("HOLDFAST_ALLOWED_SECRETS", "API_TOKEN")
    config = SandboxConfig(mode="code", runtime="python", secrets=("API_TOKEN",))
    async with await aio.toolset(config) as tools:
        result = await tools.call("sandbox_exec", {"cmd": ["env"]})
        assert "API_TOKEN" in result["stdout"]
        assert "hunter2" not in json.dumps(result)
        missing = await tools.call("sandbox_fs_read", {"path": "hunter2-hunter2"})
        assert "hunter2" not in json.dumps(missing)
        plain = await tools.call("sandbox_exec", {"cmd": ["env"], "env": {"OTHER": "hunter3"}})
        assert "hunter3" in plain["stdout"]


# --- formats of two APIs


async def test_openai_takes_it_as_it_is(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    (chat,) = tools.as_openai()
    assert (chat["type"], chat["function"]["name"]) == ("function", "sandbox_run")
    assert chat["function"]["parameters"] == tools[0].input_schema
    (responses,) = tools.as_openai("responses")
    assert (responses["type"], responses["name"]) == ("function", "sandbox_run")
    call = {"id": "c1", "function": {"name": "sandbox_run", "arguments": '{"code": "print(1)"}'}}
    message = await openai.answer(tools, call)
    assert (message["role"], message["tool_call_id"]) == ("tool", "c1")
    assert json.loads(message["content"])["ok"] is True
    item = {"type": "function_call", "call_id": "c2", "name": "sandbox_run", "arguments": "{oops"}
    output = await openai.answer(tools, item)
    assert (output["type"], output["call_id"]) == ("function_call_output", "c2")
    assert json.loads(output["output"])["error_code"] == "invalid_request"


async def test_anthropic_takes_it_as_it_is(tmp_path: Path) -> None:
    tools = await aio.toolset(prompt(tmp_path, "sandbox: python"))
    (spec,) = tools.as_anthropic()
    assert set(spec) == {"name", "description", "input_schema"}
    block = await anthropic.answer(tools, {"id": "u1", "name": "sandbox_run", "input": {"code": "print(1)"}})
    assert (block["type"], block["tool_use_id"], "is_error" in block) == ("tool_result", "u1", False)
    failed = await anthropic.answer(tools, {"id": "u2", "name": "sandbox_run", "input": {}})
    assert failed["is_error"] is True


async def test_calls_at_once_do_not_open_two_sessions(code: Toolset) -> None:
    results: list[dict[str, Any]] = []

    async def one(number: int) -> None:
        results.append(await code.call("sandbox_fs_write", {"path": f"f{number}", "contents": ""}))

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(one, number)
    assert all(result["ok"] for result in results)
    assert len((await code.call("sandbox_fs_list"))["entries"]) == 5

"""Function tools in the OpenAI Agents SDK's own loop, with its scripted model and real sandboxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from agents import Agent, RunConfig, Runner, RunResult, ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

import holdfast
from holdfast import Toolset
from holdfast.config import SandboxConfig
from tests.conformance import host

from .runaways import RUNAWAYS, left_after_cancelling, running

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)
QUIET = RunConfig(tracing_disabled=True)


@pytest.fixture
def code(engine: str) -> Iterator[Toolset]:
    with holdfast.toolset(SandboxConfig(mode="code")) as opened:
        yield opened


def agent(tools: Toolset, *calls: tuple[str, dict[str, Any] | str]) -> Agent:
    """One that calls tools, one after the other, and then says so."""
    steps = [[function_call(name, asked, call_id=f"call_{at}")] for at, (name, asked) in enumerate(calls)]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    return Agent("tester", model=model, tools=tools.as_openai_agents())


def answers(run: RunResult) -> list[dict[str, Any]]:
    return [json.loads(item.output) for item in run.new_items if isinstance(item, ToolCallOutputItem)]


async def test_an_agent_computes(engine: str) -> None:
    tools = holdfast.toolset(SandboxConfig())
    calls = [("sandbox_run", {"code": "print(6 * 7)"}), ("sandbox_run", {"code": "1 / 0"})]
    done = await Runner.run(agent(tools, *calls), "go on", run_config=QUIET)
    good, bad = answers(done)
    assert (good["ok"], good["stdout"], good["engine"], done.final_output) == (True, "42\n", engine, "done")
    assert (bad["ok"], bad["exit_code"]) == (False, 1) and "ZeroDivisionError" in bad["stderr"]


@only_local
def test_a_session_lives_on_between_blocking_calls_and_event_loops(code: Toolset) -> None:
    def ran(name: str, **asked: Any) -> dict[str, Any]:
        return answers(Runner.run_sync(agent(code, (name, asked)), "go on", run_config=QUIET))[0]

    async def run() -> RunResult:
        return await Runner.run(agent(code, ("sandbox_exec", {"command": "cat n.txt"})), "go on", run_config=QUIET)

    assert ran("sandbox_fs_write", path="n.txt", contents="42\n")["ok"]
    assert answers(anyio.run(run))[0]["stdout"] == "42\n"
    assert answers(anyio.run(run))[0]["stdout"] == "42\n"
    assert ran("sandbox_fs_read", path="n.txt")["contents"] == "42\n"


@only_local
async def test_an_agent_goes_on_after_each_kind_of_mistake(code: Toolset) -> None:
    mistakes: list[dict[str, Any] | str] = [
        *('{"command": ', "[1]", "null"),
        *({"comand": "ls"}, {"cmd": ["no-such-program"]}, {"command": "true", "cwd": "/nowhere"}),
    ]
    calls = [("sandbox_exec", asked) for asked in [*mistakes, {"command": "echo mended"}, ""]]
    done = await Runner.run(agent(code, *calls), "go on", run_config=QUIET, max_turns=20)
    told = answers(done)
    codes = [one.get("error_code") for one in told]
    assert codes == [*["invalid_request"] * 4, "command_not_found", "cwd_not_found", None, "invalid_request"]
    assert "are no JSON object" in told[1]["error"] and "did you mean command?" in told[3]["error"]
    assert told[6]["stdout"] == "mended\n"


async def test_a_cancelled_agent_leaves_no_process(code: Toolset, mark: str) -> None:
    runs_away = agent(code, ("sandbox_exec", {"command": RUNAWAYS, "env": {"HF_MARK": mark}}))
    assert not await left_after_cancelling(lambda: Runner.run(runs_away, "go on", run_config=QUIET), mark)
    after = await Runner.run(agent(code, ("sandbox_exec", {"command": "echo alive"})), "go on", run_config=QUIET)
    assert answers(after)[0]["stdout"] == "alive\n"


@only_local
async def test_a_timeout_of_the_framework_kills_the_command(code: Toolset, mark: str) -> None:
    """The SDK can bound a tool itself: it cancels the call, and the model is told."""
    bounded = agent(code, ("sandbox_exec", {"command": RUNAWAYS, "env": {"HF_MARK": mark}}))
    for tool in bounded.tools:
        tool.timeout_seconds = 3  # type: ignore[union-attr]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.until, lambda: running(mark))
        done = await Runner.run(bounded, "go on", run_config=QUIET)
    outputs = [item.output for item in done.new_items if isinstance(item, ToolCallOutputItem)]
    assert "timed out" in outputs[0]
    assert not await host.gone(mark)


@only_local
def test_a_model_is_told_what_the_tool_says(code: Toolset) -> None:
    for tool, made in zip(code, code.as_openai_agents(), strict=True):
        assert (made.name, made.description, made.params_json_schema) == (
            *(tool.name, tool.description, tool.input_schema),
        )

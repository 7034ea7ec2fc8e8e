"""LangChain tools in LangChain's own agent loop, with a scripted model and real sandboxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

import holdfast
from holdfast import Toolset, aio
from holdfast.config import SandboxConfig

from .runaways import RUNAWAYS, left_after_cancelling
from .scripted import Script, call, say

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)
ASKED: Any = {"messages": [("user", "go on")]}


@pytest.fixture
def code(engine: str) -> Iterator[Toolset]:
    with holdfast.toolset(SandboxConfig(mode="code")) as opened:
        yield opened


@pytest.fixture
def tools(code: Toolset) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in code.as_langchain()}


def asked(name: str, **arguments: Any) -> Any:
    """A call as a model makes it: what answers it is a message."""
    return {"type": "tool_call", "id": "1", "name": name, "args": arguments}


def answers(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def test_an_agent_computes(engine: str) -> None:
    tools = holdfast.toolset(SandboxConfig()).as_langchain()
    script = Script(call("sandbox_run", code="print(6 * 7)"), call("sandbox_run", code="1 / 0"), say("It is 42."))
    state = create_agent(script, tools).invoke(ASKED)
    good, bad = answers(state)
    assert script.offered == ["sandbox_run"] and state["messages"][-1].content == "It is 42."
    assert (good.status, json.loads(str(good.content))["stdout"], good.artifact["engine"]) == (
        "success",
        "42\n",
        engine,
    )
    assert (bad.status, bad.artifact["exit_code"]) == ("success", 1)  # that a program fails is no failure of the tool
    assert "ZeroDivisionError" in bad.artifact["stderr"]


@only_local
def test_a_session_lives_on_between_blocking_calls_and_event_loops(code: Toolset) -> None:
    script = Script(
        call("sandbox_fs_write", path="n.txt", contents="4"),
        say("written"),
        call("sandbox_exec", command="cat n.txt; echo 2 >> n.txt"),
        say("read"),
        call("sandbox_fs_read", path="n.txt"),
        say("read again"),
    )
    agent = create_agent(script, code.as_langchain())

    async def run() -> Any:
        return await agent.ainvoke(ASKED)

    assert answers(agent.invoke(ASKED))[0].artifact["ok"]
    assert answers(anyio.run(run))[0].artifact["stdout"] == "4"
    assert answers(anyio.run(run))[0].artifact["contents"] == "42\n"


@only_local
async def test_a_toolset_may_be_made_and_closed_in_the_agent_s_own_loop(engine: str) -> None:
    async with await aio.toolset(SandboxConfig(mode="code")) as opened:
        agent = create_agent(Script(call("sandbox_exec", command="echo 42"), say("done")), opened.as_langchain())
        assert answers(await agent.ainvoke(ASKED))[0].artifact["stdout"] == "42\n"
        assert len(await aio.list_sessions(engine)) == 1
    assert not await aio.list_sessions(engine)


@only_local
async def test_what_went_wrong_is_a_message_of_status_error(tools: dict[str, BaseTool]) -> None:
    wrong = asked("sandbox_exec", comand="ls", self=1, config={}, run_manager=None, tool_input=2)
    good = asked("sandbox_exec", command="true")
    for message in (await tools["sandbox_exec"].ainvoke(wrong), tools["sandbox_exec"].invoke(wrong)):
        assert message.status == "error"
        told = json.loads(message.content)
        assert (told["ok"], told["error_code"]) == (False, "invalid_request")
        assert "did you mean command?" in told["error"] and "config: there is no such argument" in told["error"]
    assert (await tools["sandbox_exec"].ainvoke(good)).status == "success"


@only_local
def test_an_agent_goes_on_after_a_mistake_and_after_its_sandbox_has_gone(code: Toolset) -> None:
    script = Script(
        call("sandbox_exec", cmd="ls"),
        call("sandbox_exec", cmd=["no-such-program"]),
        call("sandbox_exec", command="true", sandbox_id="sb_unknown"),
        call("sandbox_exec", command="echo mended"),
        say("done"),
    )
    codes = [json.loads(str(one.content)) for one in answers(create_agent(script, code.as_langchain()).invoke(ASKED))]
    assert [one.get("error_code") for one in codes] == [
        *("invalid_request", "command_not_found", "session_not_found", None),
    ]
    assert codes[-1]["stdout"] == "mended\n"


async def test_a_cancelled_agent_leaves_no_process(code: Toolset, mark: str) -> None:
    script = Script(call("sandbox_exec", command=RUNAWAYS, env={"HF_MARK": mark}))
    agent = create_agent(script, code.as_langchain())
    assert not await left_after_cancelling(lambda: agent.ainvoke(ASKED), mark)
    after = create_agent(Script(call("sandbox_exec", command="echo alive"), say("")), code.as_langchain())
    assert answers(await after.ainvoke(ASKED))[0].artifact["stdout"] == "alive\n"


async def test_a_cancelled_run_leaves_no_process(engine: str, mark: str) -> None:
    (tool,) = holdfast.toolset(SandboxConfig(runtime="bash")).as_langchain()
    run = asked("sandbox_run", code=RUNAWAYS, env={"HF_MARK": mark})
    assert not await left_after_cancelling(lambda: tool.ainvoke(run), mark)


@only_local
def test_a_model_is_told_what_the_tool_says(code: Toolset, tools: dict[str, BaseTool]) -> None:
    for tool in code:
        function = convert_to_openai_tool(tools[tool.name])["function"]
        assert (function["name"], function["description"]) == (tool.name, tool.description)
        assert function["parameters"]["properties"] == tool.input_schema["properties"]
        assert function["parameters"].get("required", []) == tool.input_schema.get("required", [])

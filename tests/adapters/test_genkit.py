"""Our tools in Genkit's own loop, with a model that is a function."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from genkit import (
    ActionRunContext,
    Genkit,
    Message,
    ModelInfo,
    ModelRequest,
    ModelResponse,
    Part,
    Role,
    Supports,
    ToolRequest,
)

from holdfast import aio
from holdfast.config import SandboxConfig
from tests.conformance import host

from .runaways import RUNAWAYS, left_after_cancelling

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


def scripted(ai: Genkit, *turns: Part) -> list[ModelRequest[Any]]:
    """A model named `script` that says this, turn by turn; what it is asked is noted."""
    asked: list[ModelRequest[Any]] = []
    script: Iterator[Part] = iter(turns)

    async def model(request: ModelRequest[Any], context: ActionRunContext) -> ModelResponse:
        asked.append(request)
        return ModelResponse(message=Message(role=Role.MODEL, content=[next(script)]))

    ai.define_model("script", model, info=ModelInfo(supports=Supports(tools=True, multiturn=True)))
    return asked


def call(name: str, **arguments: Any) -> Part:
    return Part(tool_request=ToolRequest(name=name, ref=secrets.token_hex(4), input=arguments))


def results(request: ModelRequest[Any]) -> list[Any]:
    return [
        part.tool_response.output
        for message in request.messages
        for part in message.content
        if message.role == Role.TOOL and part.tool_response
    ]


async def test_a_model_calls_our_tools_and_mends_its_calls(engine: str) -> None:
    ai = Genkit()
    asked = scripted(
        ai,
        call("sandbox_fs_write", path="a.py", contents="print(6 * 7)"),
        call("sandbox_exec", cmd="python3 a.py"),
        call("sandbox_exec", command="python3 a.py"),
        call("sandbox_exec", command="exit 3"),
        Part(text="it is 42"),
    )
    async with await aio.toolset(SandboxConfig(mode="code", runtime="python")) as tools:
        made = tools.as_genkit(ai)
        answer = await ai.generate(model="script", prompt="6 * 7?", tools=made)
        assert answer.text == "it is 42"
    told = {tool.name: (tool.description, tool.input_schema) for tool in asked[0].tools or ()}
    assert told == {tool.name: (tool.description, tool.input_schema) for tool in tools}
    written, mistaken, ran, failed = results(asked[-1])
    assert written["ok"] is True
    assert (mistaken["ok"], mistaken["error_code"]) == (False, "invalid_request")
    assert (ran["ok"], ran["stdout"]) == (True, "42\n")
    assert (failed["ok"], failed["exit_code"], "error" in failed) == (False, 3, False)


async def test_a_call_that_is_late_or_cancelled_leaves_no_process(engine: str, mark: str) -> None:
    ai, marked = Genkit(), {"HF_MARK": mark}
    asked = scripted(
        ai,
        call("sandbox_exec", command=RUNAWAYS, env=marked, timeout_seconds=1),
        Part(text="too late"),
        call("sandbox_exec", command=RUNAWAYS, env=marked),
    )
    async with await aio.toolset(SandboxConfig(mode="code", runtime="bash")) as tools:
        names = [tool.name for tool in tools.as_genkit(ai)]
        assert (await ai.generate(model="script", prompt="?", tools=names)).text == "too late"
        assert results(asked[-1])[0]["end_cause"] == "timeout"
        assert await host.gone(mark) == []
        assert await left_after_cancelling(lambda: ai.generate(model="script", prompt="?", tools=names), mark) == []
        assert (await tools.call("sandbox_exec", {"command": "echo still here"}))["stdout"] == "still here\n"


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_the_example_runs(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "examples/agent_loop_genkit.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "No such file or directory: 'service.log'" in done.stdout
    assert '"error_count": 20' in done.stdout

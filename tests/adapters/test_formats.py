"""The formats of OpenAI and of Anthropic, held against the types of their own packages; no engine has to run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import ToolParam, ToolResultBlockParam, ToolUseBlock
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import ConfigDict, TypeAdapter, with_config

import holdfast
from holdfast import Toolset
from holdfast.config import SandboxConfig
from holdfast.engines.fake import FakeEngine
from holdfast.tools.adapters import anthropic, openai

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["compute", "code"])
def tools(request: pytest.FixtureRequest) -> Iterator[Toolset]:
    with FakeEngine(), holdfast.toolset(SandboxConfig(mode=request.param), engine="fake") as opened:
        yield opened


def accept(kind: Any, made: Any) -> None:
    """Whether a TypedDict of theirs takes it, with no key too few and none too many."""
    strict = with_config(ConfigDict(extra="forbid"))(kind)
    assert TypeAdapter(strict).validate_python(made, strict=True) == made


def test_what_they_do_not_know_is_not_accepted() -> None:
    for kind in (ChatCompletionFunctionToolParam, FunctionToolParam, ToolParam):
        with pytest.raises(ValueError, match=r"extra_forbidden|missing"):
            accept(kind, {"type": "function", "nonsense": 1})


def test_their_types_take_our_tools(tools: Toolset) -> None:
    for made in tools.as_openai():
        accept(ChatCompletionFunctionToolParam, made)
    for made in tools.as_openai("responses"):
        accept(FunctionToolParam, made)
    for made in tools.as_anthropic():
        accept(ToolParam, made)


async def test_their_calls_are_answered_in_their_form(tools: Toolset) -> None:
    name, asked = tools[0].name, {"nonsense": 1}
    chat = ChatCompletionMessageFunctionToolCall.model_validate(
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(asked)}}
    )
    item = ResponseFunctionToolCall(name=name, arguments=json.dumps(asked), call_id="call_2", type="function_call")
    block = ToolUseBlock(id="call_3", name=name, input=asked, type="tool_use", caller={"type": "direct"})
    message = await openai.answer(tools, chat.model_dump())
    accept(ChatCompletionToolMessageParam, message)
    output = await openai.answer(tools, item.model_dump())
    accept(FunctionCallOutput, output)
    result = await anthropic.answer(tools, block.model_dump())
    accept(ToolResultBlockParam, result)
    assert (message["tool_call_id"], output["call_id"], result["tool_use_id"]) == ("call_1", "call_2", "call_3")
    for text in (message["content"], output["output"], result["content"]):
        assert json.loads(text)["error_code"] == "invalid_request"
    assert result["is_error"] is True


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "no JSON object"),
        ('{"a": 1}', "no such argument"),
        ('{"\\ud800": 1}', ""),
    ],
)
async def test_arguments_that_are_no_json_object_are_a_result(tools: Toolset, arguments: str, error: str) -> None:
    item = {"type": "function_call", "call_id": "c", "name": tools[0].name, "arguments": arguments}
    told = json.loads((await openai.answer(tools, item))["output"])
    assert told["error_code"] == "invalid_request" and error in told["error"]

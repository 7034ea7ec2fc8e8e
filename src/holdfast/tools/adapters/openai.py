"""OpenAI's tool format, for chat completions and for responses; and a call of its message back to a result."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest
from ..tool import Result, failure

if TYPE_CHECKING:
    from ..toolset import Toolset


def specifications(tools: Toolset, api: str = "chat") -> list[dict[str, Any]]:
    if api not in ("chat", "responses"):
        raise InvalidRequest(f"there is no API {api!r} of OpenAI; there are chat and responses")
    made = [
        {"name": tool.name, "description": tool.description, "parameters": tool.input_schema, "strict": False}
        for tool in tools
    ]
    if api == "responses":
        return [{"type": "function", **one} for one in made]
    return [{"type": "function", "function": one} for one in made]


async def answer(tools: Toolset, call: dict[str, Any]) -> dict[str, Any]:
    """The message or item that answers a tool call of the model, in the form of the API that it came from."""
    responses = call.get("type") == "function_call"
    asked = call if responses else call["function"]
    text = json.dumps(await result(partial(tools.call, asked["name"]), asked["arguments"]))
    if responses:
        return {"type": "function_call_output", "call_id": call["call_id"], "output": text}
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def result(call: Callable[[dict[str, Any]], Awaitable[Result]], arguments: str) -> Result:
    """What a call gives whose arguments are JSON, as the model wrote it."""
    try:
        asked = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        return failure(InvalidRequest(f"the arguments are no JSON: {error}"))
    if not isinstance(asked, dict):
        return failure(InvalidRequest("the arguments are no JSON object"))
    return await call(asked)

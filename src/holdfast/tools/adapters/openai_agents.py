"""Function tools of the OpenAI Agents SDK: `Agent(tools=toolset.as_openai_agents())`.

`Runner.run_sync` may make an event loop of its own each time, while a session lives on. So every call is made in the
one loop of `holdfast.sync`. Close the toolset when no call is under way.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from agents import FunctionTool

from ...sync import awaited
from ..tool import Tool
from . import openai

if TYPE_CHECKING:
    from agents.tool_context import ToolContext

    from ..toolset import Toolset


def tools(toolset: Toolset) -> list[FunctionTool]:
    return [_made(tool) for tool in toolset]


def _made(tool: Tool) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        return json.dumps(await awaited(partial(openai.result, tool.call, arguments)), ensure_ascii=False)

    # Strict would make every argument a required one.
    return FunctionTool(tool.name, tool.description, tool.input_schema, invoke, strict_json_schema=False)

"""LangChain tools: `create_agent(model, tools=toolset.as_langchain())`, with `invoke` and with `ainvoke`.

An agent may be called both ways, and from one event loop after another, while its session lives on. So every call,
blocking or not, is made in the one loop of `holdfast.sync`. Close the toolset when no call is under way.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from ...sync import awaited
from ..tool import Result, Tool

if TYPE_CHECKING:
    from ..toolset import Toolset


class SandboxTool(BaseTool):
    """One of our tools. The message that answers a call holds the result as JSON, and as a dict in `artifact`."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    """what went wrong is an answer, of status `error`, and not an exception in the agent's loop"""
    _tool: Tool = PrivateAttr()

    def __init__(self, tool: Tool) -> None:
        # As a dict the schema is not applied here, but by the tool itself: its answers say how to mend a call.
        super().__init__(name=tool.name, description=tool.description, args_schema=tool.input_schema)
        self._tool = tool

    # Positional only, and no `config` or `run_manager`: a model may call its arguments anything.
    def _run(self, /, **arguments: Any) -> tuple[str, Result]:
        return _answer(self._tool.call_blocking(arguments))

    async def _arun(self, /, **arguments: Any) -> tuple[str, Result]:
        return _answer(await awaited(partial(self._tool.call, arguments)))


def tools(toolset: Toolset) -> list[SandboxTool]:
    return [SandboxTool(tool) for tool in toolset]


def _answer(result: Result) -> tuple[str, Result]:
    text = json.dumps(result, ensure_ascii=False)
    if "error" in result:  # a program that fails is no error of the tool
        raise ToolException(text)
    return text, result

"""Genkit tools: `ai.generate(prompt=…, tools=toolset.as_genkit(ai))`.

A tool's arguments are not checked by Genkit, which would end the model's turn, but by the tool itself: its answers say
how to mend a call. A toolset is registered with one `Genkit` once; its tools are then known there by their names too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import genkit

from ..tool import Result, Tool

if TYPE_CHECKING:
    from ..toolset import Toolset


def tools(toolset: Toolset, ai: genkit.Genkit) -> list[genkit.Tool]:
    return [_registered(tool, ai) for tool in toolset]


def _registered(tool: Tool, ai: genkit.Genkit) -> genkit.Tool:
    async def call(arguments: Any) -> Result:
        return await tool.call(arguments)

    return ai.tool(tool.name, tool.description, input_schema=tool.input_schema)(call)

"""Anthropic's tool format, and the block that answers a tool_use block."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..toolset import Toolset


def specifications(tools: Toolset) -> list[dict[str, Any]]:
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]


async def answer(tools: Toolset, use: dict[str, Any]) -> dict[str, Any]:
    """The tool_result block for a tool_use block of the model."""
    result = await tools.call(use["name"], use.get("input") or {})
    failed = "error" in result  # a program that fails is no error of the tool
    return {
        "type": "tool_result",
        "tool_use_id": use["id"],
        "content": json.dumps(result),
        **({"is_error": True} if failed else {}),
    }

"""A chat model of LangChain that says what a script says, so that an agent's loop runs without a network."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field


class Script(GenericFakeChatModel):
    """Its answers, one for each time that it is asked."""

    offered: list[str] = Field(default_factory=list[str])
    """the names of the tools that it was told of"""

    def __init__(self, *answers: AIMessage) -> None:
        super().__init__(messages=iter(answers))

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[LanguageModelInput, AIMessage]:
        self.offered = [tool.name for tool in tools if isinstance(tool, BaseTool)]
        return self


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": secrets.token_hex(4)}])


def say(text: str) -> AIMessage:
    return AIMessage(text)

"""A LangChain agent that writes a program, sees its test fail, mends it, and sees it pass.

    pip install 'holdfast[langchain]' langchain
    python examples/agent_loop_langchain.py

The model is a script, so that nothing is needed but this machine: what it says is written down here. The agent's loop
is LangChain's own, and the sandbox is real. For a real model, give `create_agent` its name in place of the script.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from first_run import fact, heading, verdict
from langchain.agents import create_agent
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable

import holdfast
from holdfast import SandboxError

PROMPT = Path(__file__).with_name("coder.prompt")
TEST = "from median import median; assert median([4, 1, 3, 2]) == 2.5, 'between the two'; print('passed')"
WRONG = "def median(numbers):\n    return sorted(numbers)[len(numbers) // 2]\n"
RIGHT = """\
def median(numbers):
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
"""
SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("sandbox_open", {}),
    ("sandbox_fs_write", {"path": "median.py", "content": WRONG}),
    ("sandbox_exec", {"cmd": ["python3", "-c", TEST]}),
    ("sandbox_fs_write", {"path": "median.py", "content": RIGHT, "overwrites": True}),  # there is no such argument
    ("sandbox_fs_write", {"path": "median.py", "content": RIGHT}),
    ("sandbox_exec", {"cmd": ["python3", "-c", TEST]}),
]


class Script(GenericFakeChatModel):
    """A model that says what is written down."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self


def script() -> Script:
    calls = [
        AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{at}"}])
        for at, (name, arguments) in enumerate(SCRIPT)
    ]
    return Script(messages=iter([*calls, AIMessage("The test says: passed.")]))


def shown(message: ToolMessage) -> bool:
    """Print what a tool answered. Whether it went well."""
    result = json.loads(str(message.content))
    lines = (result.get("error") or result.get("stderr") or result.get("stdout") or result.get("path") or "").split(
        "\n"
    )
    verdict(result["ok"], f"{message.name}  →  {next((line for line in reversed(lines) if line), 'done')}")
    return bool(result["ok"])


def main() -> int:
    heading("An agent of LangChain, with one of our sessions")
    with holdfast.toolset(PROMPT) as tools:
        fact("tools", ", ".join(tool.name for tool in tools))
        agent = create_agent(script(), tools=tools.as_langchain())
        state = agent.invoke({"messages": [HumanMessage("Write median.py.")]})
        went = [shown(message) for message in state["messages"] if isinstance(message, ToolMessage)]
    fact("agent", state["messages"][-1].content)
    return 0 if went == [True, True, False, False, True, True] else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SandboxError as error:
        print(f"✘ {error}", file=sys.stderr)
        raise SystemExit(125) from None

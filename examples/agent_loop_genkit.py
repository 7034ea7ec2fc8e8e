"""An agent of Genkit that is asked about a log, computes the answer with a mistake in its code, and mends it.

    pip install 'holdfast[genkit]'
    python examples/agent_loop_genkit.py

The model is a function, so that nothing is needed but this machine: what it says is written down here. The agent's loop
is Genkit's own, each run has a fresh sandbox, and the sandboxes are real.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from first_run import HERE, code_of, fact, heading, verdict
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

from holdfast import SandboxError, aio

PROMPT = HERE / "log_analyzer.prompt"


def last_result(request: ModelRequest[Any]) -> dict[str, Any] | None:
    """What the tool answered last."""
    response = request.messages[-1].content[0].tool_response
    return dict(response.output) if response and isinstance(response.output, dict) else None


async def script(request: ModelRequest[Any], context: ActionRunContext) -> ModelResponse:
    """A model that mends its code when it is told what is wrong with it."""
    result, code = last_result(request), code_of(PROMPT)
    if result is None:  # its first try looks for the log where it is not
        part = call(code.replace("app.log", "service.log"))
    elif not result["ok"]:
        verdict(False, str(result["stderr"]).splitlines()[-1])
        part = call(code)
    else:
        verdict(True, f"exit {result['exit_code']}, on {result['engine']}")
        part = Part(text=str(result["stdout"]))
    return ModelResponse(message=Message(role=Role.MODEL, content=[part]))


def call(code: str) -> Part:
    log = Path(HERE / "app.log").read_text()
    return Part(tool_request=ToolRequest(name="sandbox_run", ref="1", input={"code": code, "files": {"app.log": log}}))


async def main() -> int:
    heading("An agent of Genkit, with a fresh sandbox for each run")
    ai = Genkit()
    ai.define_model("script", script, info=ModelInfo(supports=Supports(tools=True, multiturn=True)))
    async with await aio.toolset(PROMPT) as tools:
        fact("tools", ", ".join(tool.name for tool in tools))
        answer = await ai.generate(model="script", prompt="What went wrong last night?", tools=tools.as_genkit(ai))
    fact("agent", answer.text)
    return 0 if '"error_count": 20' in answer.text else 1


if __name__ == "__main__":
    try:
        raise SystemExit(anyio.run(main))
    except SandboxError as error:
        print(f"✘ {error}", file=sys.stderr)
        raise SystemExit(125) from None

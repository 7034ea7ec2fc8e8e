"""An agent of the OpenAI Agents SDK that computes instead of guessing.

    pip install 'holdfast[openai-agents]'
    python examples/agent_loop_openai_agents.py

The model is a script (the SDK brings one along for tests), so that nothing is needed but this machine. The agent's loop
is the SDK's own, and the sandbox is real. For a real model, leave `model=` away or name one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agents import Agent, RunConfig, Runner, ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call
from first_run import fact, heading, verdict

import holdfast
from holdfast import SandboxError

HERE = Path(__file__).parent
CODE = """\
from collections import Counter
errors = [line.split("ERROR", 1)[1].strip() for line in open("app.log") if " ERROR " in line]
print(len(errors), "errors; most often:", Counter(errors).most_common(1)[0][0])
"""


def script() -> ScriptedModel:
    files = {"app.log": (HERE / "app.log").read_text()}
    calls: list[dict[str, object]] = [
        {"code": CODE},  # it forgets the file, and is told so by a program that fails
        {"code": CODE, "files": files},
    ]
    steps = [[function_call("sandbox_run", asked, call_id=f"call_{at}")] for at, asked in enumerate(calls)]
    return ScriptedModel([*steps, [assistant_message("There are 20 errors.")]])


def main() -> int:
    heading("An agent of the OpenAI Agents SDK, each call in a fresh sandbox")
    with holdfast.toolset(HERE / "log_analyzer.prompt") as tools:
        agent = Agent("Log Analyzer", model=script(), tools=[*tools.as_openai_agents()])
        done = Runner.run_sync(agent, "What goes wrong?", run_config=RunConfig(tracing_disabled=True))
    answers = [json.loads(item.output) for item in done.new_items if isinstance(item, ToolCallOutputItem)]
    for answer in answers:
        said = (answer["stderr"] or answer["stdout"]).strip().split("\n")[-1]
        verdict(answer["ok"], f"sandbox_run on {answer['engine']}  →  {said}")
    fact("agent", str(done.final_output))
    return 0 if [answer["ok"] for answer in answers] == [False, True] else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SandboxError as error:
        print(f"✘ {error}", file=sys.stderr)
        raise SystemExit(125) from None

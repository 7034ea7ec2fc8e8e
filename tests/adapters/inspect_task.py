"""A tiny task of Inspect with a scripted model. The tests run it: `inspect eval inspect_task.py -T command=…`."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox


@scorer(metrics=[accuracy()])
def answer() -> Scorer:
    """Whether the file holds what is asked for."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=int(await sandbox().read_file("answer") == f"{target.text}\n"))

    return score


@task
def tiny(command: str = "true") -> Task:
    script = [
        ModelOutput.for_tool_call("mockllm", "bash", {"command": f"sh calculate question > answer; {command}"}),
        ModelOutput.from_content("mockllm", "done"),
    ]
    for output in script:
        output.usage = ModelUsage()  # or the tokens are counted, with a table from the network
    return Task(
        dataset=[Sample("?", target="42", files={"question": "6 * 7"}, setup="echo 'echo $(($(cat $1)))' > calculate")],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=answer(),
        model=get_model("mockllm/model", custom_outputs=script),
        sandbox="holdfast",
    )

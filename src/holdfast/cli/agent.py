"""`holdfast agent`: call one tool as the agent of a prompt file would."""

from __future__ import annotations

import json
from typing import Any

import click

from .. import errors
from . import _complete
from ._common import Command, execute, print_json


@click.command(
    "agent",
    cls=Command,
    examples="""
        holdfast agent agent.prompt --input '{"code": "print(6 * 7)"}'
        holdfast agent agent.prompt --tool sandbox_run --input '{"code": "print(6 * 7)"}'
        holdfast agent coder.prompt --workflow wf_1 --tool sandbox_exec --input '{"command": "ls"}'
    """,
)
@click.argument("file", metavar="FILE", shell_complete=_complete.prompts)
@click.option(
    "--tool",
    "name",
    metavar="NAME",
    shell_complete=_complete.tools,
    help="Which tool; not needed if the agent has one.",
)
@click.option("--input", "text", metavar="JSON", default="{}", help="Its arguments, as a model would send them.")
@click.option("--workflow", metavar="ID", envvar="HOLDFAST_WORKFLOW", help="Workflow run that the agent is part of.")
@click.option("--agent-run", metavar="ID", help="Run of the agent itself.")
def command(file: str, name: str | None, text: str, workflow: str | None, agent_run: str | None) -> int:
    """Call one tool of an agent and print its result as JSON.

    Exit status 0 when the result says ok, else 1; 125 when there is no result.
    """

    async def work() -> int:
        from ..tools.offer import ExecutionContext
        from ..tools.toolset import toolset

        arguments = _arguments(text)
        context = ExecutionContext(workflow_run_id=workflow, agent_run_id=agent_run)
        async with await toolset(file, context=context) as tools:
            names = [tool.name for tool in tools]
            if not names:
                raise errors.InvalidRequest(f"{file} has no sandbox in its frontmatter, so its agent has no tools")
            if name is None and len(names) > 1:
                raise errors.InvalidRequest(f"say which: --tool {', '.join(names)}")
            result = await tools.call(name or names[0], arguments)
        print_json(result)
        return 0 if result["ok"] else 1

    return execute(work, as_json=True)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise errors.InvalidRequest(f'--input is no JSON, such as \'{{"code": "print(1)"}}\': {error}') from error
    if not isinstance(found, dict):
        raise errors.InvalidRequest('--input is an object, such as {"code": "print(1)"}')
    return found

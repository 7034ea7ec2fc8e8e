"""`holdfast tools`: the tools that an agent's prompt file gives it, as a model sees them."""

from __future__ import annotations

import click

from . import _complete
from ._common import Command, execute, json_option, print_json
from ._render import facts


@click.command(
    "tools",
    cls=Command,
    examples="""
        holdfast tools agent.prompt
        holdfast tools agent.prompt --json
    """,
)
@click.argument("file", metavar="FILE", shell_complete=_complete.prompts)
@json_option
def command(file: str, as_json: bool) -> int:
    """Show the tools of an agent: name, description and schemas.

    Nothing is started. A file without `sandbox` in its frontmatter has no tools.
    """

    async def work() -> int:
        from ..tools.toolset import toolset

        async with await toolset(file) as tools:
            if as_json:
                print_json(
                    [
                        {
                            "name": tool.name,
                            "description": tool.description,
                            "input_schema": tool.input_schema,
                            "output_schema": tool.output_schema,
                        }
                        for tool in tools
                    ]
                )
                return 0
            if not len(tools):
                click.echo(f"{file} has no sandbox in its frontmatter, so its agent has no tools")
            for number, tool in enumerate(tools):
                if number:
                    click.echo()
                inputs = tool.input_schema
                needed = inputs.get("required", [])
                names = [f"{name}{'' if name in needed else '?'}" for name in inputs["properties"]]
                facts([("tool", tool.name), ("takes", ", ".join(names)), ("says", tool.description)])
            return 0

    return execute(work, as_json=as_json)

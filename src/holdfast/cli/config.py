"""`holdfast config`: the settings that hold here, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ._common import Command, execute, json_option, print_json, say
from ._render import facts, setting, table

if TYPE_CHECKING:
    from ..sources import Sources


@click.command(
    "config",
    cls=Command,
    examples="""
        holdfast config
        holdfast config --changed
        holdfast config --json
        holdfast config --schema > frontmatter.schema.json; wc -l frontmatter.schema.json
        HOLDFAST_MAX_MEMORY_MB=1024 holdfast config --changed
    """,
)
@click.option("--changed", is_flag=True, help="Only those that are not the default.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a prompt file's frontmatter, for editors.")
@json_option
def command(changed: bool, schema: bool, as_json: bool) -> int:
    """Show the operator's settings and where each comes from.

    A setting is given by its variable, else by its key in the TOML file, else it has its default. The file is
    HOLDFAST_CONFIG, else ~/.config/holdfast/config.toml, else /etc/holdfast/config.toml.
    """

    async def work() -> int:
        from ..config import sources

        if schema:
            from importlib.resources import files

            click.echo(files("holdfast").joinpath("schema/frontmatter.json").read_text("utf-8"), nl=False)
            return 0
        found = sources()
        if as_json:
            print_json({"ok": True, "file": found.file, "settings": _as_json(found, changed), "notes": found.notes})
        else:
            _show(found, changed)
        return 0

    return execute(work, as_json=as_json)


def _as_json(found: Sources, changed: bool) -> dict[str, Any]:
    from ..config import Settings, variables

    return {
        name: {
            "value": getattr(found.settings, name),
            "origin": str(found.origin(name)),
            "default": field.default,
            "variable": variables()[name].name,
        }
        for name, field in Settings.model_fields.items()
        if name in found.origins or not changed
    }


def _show(found: Sources, changed: bool) -> None:
    from ..config import variables

    facts([("file", found.file or "none")])
    click.echo()
    table(
        ("SETTING", "VALUE", "FROM", "VARIABLE"),
        [
            (name, setting(getattr(found.settings, name)), str(found.origin(name)), env.name)
            for name, env in variables().items()
            if name in found.origins or not changed
        ],
    )
    for note in found.notes:
        say(note)

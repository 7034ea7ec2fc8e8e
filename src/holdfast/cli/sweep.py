"""`holdfast sweep`: remove what dead sessions left."""

from __future__ import annotations

import click

from ._common import Command, engine_option, execute, json_option, print_json


@click.command(
    "sweep",
    cls=Command,
    examples="""
        holdfast sweep
        holdfast sweep --json
    """,
)
@engine_option
@json_option
def command(engine: str | None, as_json: bool) -> int:
    """Remove what is expired or orphaned.

    Any process may do it at any time; living sessions are not touched."""

    async def work() -> int:
        from .. import aio

        removed = await aio.sweep(engine=engine)
        if as_json:
            print_json({"ok": True, "removed": removed})
        else:
            click.echo(f"removed {removed}")
        return 0

    return execute(work, as_json=as_json)

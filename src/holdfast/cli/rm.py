"""`holdfast rm`: delete files of a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ._common import Command, Key, execute, takes_key


@click.command(
    "rm",
    cls=Command,
    examples="""
        holdfast rm --workflow demo :old.txt
        holdfast rm --workflow demo -r :build
    """,
)
@takes_key
@click.option("-r", "--recursive", is_flag=True, help="Folders, with all that is in them.")
@click.argument("paths", nargs=-1, required=True, metavar=":PATH...")
def command(key: Key, paths: Sequence[str], recursive: bool) -> int:
    """Delete files of a session.

    The colon may be left out."""
    key.require()

    async def work() -> int:
        async with key.find() as session:
            for path in paths:
                await session.delete(path.removeprefix(":"), recursive=recursive)
        return 0

    return execute(work)

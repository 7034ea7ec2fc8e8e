"""`holdfast stage`: a file of the object store into a session."""

from __future__ import annotations

import click

from ._common import Command, Key, execute, json_option, print_json, takes_key
from ._progress import Bar


@click.command(
    "stage",
    cls=Command,
    examples="""
        holdfast stage --workflow demo data.csv :in/data.csv
        holdfast stage --workflow demo data.csv :in/
        holdfast stage --workflow demo /shared/model.bin :model.bin --json
    """,
)
@takes_key
@click.option("--bucket", metavar="NAME", help="Another bucket than the configured one.")
@json_option
@click.argument("file_key", metavar="KEY")
@click.argument("path", metavar=":PATH")
def command(key: Key, bucket: str | None, file_key: str, path: str, as_json: bool) -> int:
    """Bring a file of the object store into a session.

    KEY is one of the workflow's own files; /KEY is a whole key. The file appears when all of it is there."""
    key.require()

    async def work() -> int:
        async with key.find() as session:
            with Bar(file_key) as bar:
                staged = await session.stage(file_key, path.removeprefix(":") or ".", bucket=bucket, on_progress=bar)
        if as_json:
            print_json({"ok": True, **staged.as_tool()})
        return 0

    return execute(work, as_json=as_json)

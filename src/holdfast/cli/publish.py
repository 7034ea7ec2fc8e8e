"""`holdfast publish`: a file of a session into the object store."""

from __future__ import annotations

import click

from ..errors import printable
from ._common import Command, Key, execute, json_option, print_json, takes_key
from ._progress import Bar


@click.command(
    "publish",
    cls=Command,
    examples="""
        holdfast publish --workflow demo :out/report.pdf
        holdfast publish --workflow demo :out/report.pdf report.pdf
        holdfast publish --workflow demo :out/report.pdf /shared/report.pdf --json
    """,
)
@takes_key
@click.option("--bucket", metavar="NAME", help="Another bucket than the configured one.")
@json_option
@click.argument("path", metavar=":PATH")
@click.argument("file_key", metavar="[KEY]", required=False)
def command(key: Key, bucket: str | None, path: str, file_key: str | None, as_json: bool) -> int:
    """Put a file of a session into the object store, and print its key.

    KEY is within the workflow's own files, and the path without it; /KEY is a whole key."""
    key.require()

    async def work() -> int:
        async with key.find() as session:
            with Bar(path) as bar:
                staged = await session.publish(path.removeprefix(":"), file_key, bucket=bucket, on_progress=bar)
        if as_json:
            print_json({"ok": True, **staged.as_tool()})
        else:
            click.echo(printable(staged.file_key))
        return 0

    return execute(work, as_json=as_json)

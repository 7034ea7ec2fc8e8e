"""`holdfast ls`: what is in a session's workspace."""

from __future__ import annotations

import time

import click

from .. import errors
from ..errors import printable
from ._common import Command, Key, execute, json_option, print_json, say, takes_key
from ._render import size, table

_MAX_ENTRIES = 100_000
_LETTER = {"file": "-", "directory": "d", "symlink": "l", "other": "?"}


@click.command(
    "ls",
    cls=Command,
    examples="""
        holdfast ls --workflow demo
        holdfast ls --workflow demo -l -R
        holdfast ls --workflow demo --json :.
    """,
)
@takes_key
@click.option("-l", "--long", "long", is_flag=True, help="Kind and mode, size, and time of change too.")
@click.option("-R", "--recursive", is_flag=True, help="Folders within folders too.")
@json_option
@click.argument("path", default=".", metavar="[:PATH]")
def command(key: Key, path: str, long: bool, recursive: bool, as_json: bool) -> int:
    """List files of a session.

    Paths are those in the workspace; a folder ends with /."""
    key.require()
    path = path.removeprefix(":") or "."

    async def work() -> int:
        async with key.find() as session:
            try:
                listing = await session.list(path, recursive=recursive, max_entries=_MAX_ENTRIES)
                entries, truncated = listing.entries, listing.truncated
            except errors.SandboxNotADirectory:
                entries, truncated = (await session.stat(path),), False
        entries = tuple(sorted(entries, key=lambda entry: entry.path))
        if as_json:
            print_json({"ok": True, "entries": [entry.as_tool() for entry in entries], "truncated": truncated})
            return 0
        if long:
            rows = [
                (
                    f"{_LETTER[entry.kind.value]}{entry.mode:04o}",
                    size(entry.size_bytes),
                    time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified_ms / 1000)),
                    entry.path + _mark(entry.kind.value),
                )
                for entry in entries
            ]
            table(("MODE", "SIZE", "CHANGED", "PATH"), rows)
        else:
            for entry in entries:
                click.echo(printable(entry.path) + _mark(entry.kind.value))
        if truncated:
            say(f"there are more than {_MAX_ENTRIES} entries: these are the first")
        return 0

    return execute(work, as_json=as_json)


def _mark(kind: str) -> str:
    return "/" if kind == "directory" else ""

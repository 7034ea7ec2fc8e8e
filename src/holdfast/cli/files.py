"""`holdfast files`: what is in the object store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ._common import Command, execute, json_option, print_json, say
from ._render import duration, size, table

if TYPE_CHECKING:
    from ..staging.objects import StagedFile
    from ..staging.reach import Reach
    from ..staging.store import Store


@click.command(
    "files",
    cls=Command,
    examples="""
        holdfast files
        holdfast files --workflow demo --json
        holdfast files ls shared/
        holdfast files rm --workflow demo data.csv
    """,
)
@click.option("--workflow", metavar="ID", envvar="HOLDFAST_WORKFLOW", help="The workflow whose own files are meant.")
@click.option("--agent", metavar="ID", envvar="HOLDFAST_AGENT", help="The agent, where there is no workflow.")
@click.option("--bucket", metavar="NAME", help="Another bucket than the configured one.")
@json_option
@click.argument("action", type=click.Choice(["ls", "rm"]), default="ls", metavar="[ls|rm]")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def command(
    workflow: str | None, agent: str | None, bucket: str | None, action: str, keys: Sequence[str], as_json: bool
) -> int:
    """List files of the object store, or delete some.

    For `ls`, a KEY is the beginning of those to list. Keys are within the workflow's own files, if one is named;
    /KEY is a whole key."""
    if action == "rm" and not keys:
        raise click.UsageError("say which files: their keys; `holdfast files` lists them")

    async def work() -> int:
        from ..config import settings
        from ..staging.reach import everything, own_prefix
        from ..staging.store import open_store

        config = settings()
        reach = everything(config, own_prefix(config, workflow, agent))
        async with open_store(config) as store:
            if action == "rm":
                gone = [await store.delete(reach.writable(key, bucket)) for key in keys]
                if as_json:
                    print_json({"ok": True, "deleted": [file.as_tool() for file in gone]})
                return 0
            await _list(store, reach, keys or [""], bucket, as_json)
        return 0

    return execute(work, as_json=as_json)


async def _list(store: Store, reach: Reach, keys: Sequence[str], bucket: str | None, as_json: bool) -> None:
    own = "" if bucket else reach.own
    prefixes = [key[1:] if key.startswith("/") else key if key.startswith(own) else own + key for key in keys]
    found: dict[str, StagedFile] = {}
    truncated, unreadable = False, 0
    for prefix in prefixes:
        listed = await store.list(reach.bucket_of(bucket), prefix)
        found |= {file.name: file for file in listed.files}
        truncated, unreadable = truncated or listed.truncated, max(unreadable, listed.unreadable)
    files = [found[name] for name in sorted(found)]
    if as_json:
        told = [file.as_tool() for file in files]
        print_json({"ok": True, "files": told, "truncated": truncated, "unreadable": unreadable})
        return
    now = time.time()
    table(
        ("KEY", "SIZE", "AGE"),
        [(file.name, size(file.size_bytes), duration(max(0, now - file.modified))) for file in files],
    )
    if truncated:
        say("there are more files than these; say how the keys begin that you mean")
    if unreadable:
        say(f"{unreadable} of the store's records cannot be read, and are left out")

"""`holdfast logs`: what a command of a session wrote, from any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import errors
from ._common import Command, Key, execute, json_option, print_json, say, takes_key
from ._live import Sink, conclude

if TYPE_CHECKING:
    from .. import aio
    from ..results import ExecResult, OutputRead

_LOOK_SECONDS = 5.0
"""how long one request waits for news"""


@click.command(
    "logs",
    cls=Command,
    context_settings={"allow_interspersed_args": True},
    examples="""
        holdfast logs --workflow demo
        holdfast logs --workflow demo --follow
        holdfast logs --workflow demo --json
    """,
)
@takes_key
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until it ends, with its exit status; Ctrl-C leaves it running."
)
@json_option
@click.argument("exec_id", required=False, metavar="[EXEC]")
def command(key: Key, exec_id: str | None, follow: bool, as_json: bool) -> int:
    """Show what a detached command wrote.

    EXEC is what `holdfast exec --detach` printed, and `ps --execs` lists; without it, the one that was started last.
    """
    key.require()

    async def work() -> int:
        async with key.find() as session:
            process = session.process(exec_id or await _last(session))
            shown = _Shown(quiet=as_json)
            while True:
                read = await process.read(shown.next, wait=_LOOK_SECONDS if follow else 0)
                await shown.add(read)
                if read.ended or (not follow and not read.chunks):
                    break
            result = await process.wait() if read.ended else None
        if as_json:
            print_json(_told(process.id, shown, result))
            return 0
        shown.confess()
        if result is None:
            say(f"{process.id} goes on; to see the rest: holdfast logs {key.words} --follow {process.id}")
        return conclude(result, None) if follow and result else 0

    return execute(work, as_json=as_json)


async def _last(session: aio.Session) -> str:
    known = await session.processes()
    if not known:
        raise errors.ExecNotFound(f"nothing was started in the session {session.key} yet; see: holdfast exec --detach")
    return min(known, key=lambda info: info.started_ms_ago).exec_id


class _Shown:
    """What was read: written to stdout and stderr as it comes, or kept for JSON."""

    def __init__(self, quiet: bool) -> None:
        self.next = 0
        self.missing = 0
        self.kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._sinks = None if quiet else {"stdout": Sink(1), "stderr": Sink(2)}

    async def add(self, read: OutputRead) -> None:
        for chunk in read.chunks:
            if self._sinks:
                await self._sinks[chunk.stream].write(chunk.data)
            else:
                self.kept[chunk.stream] += chunk.data
        self.missing += read.expired_bytes
        self.next = read.next

    def confess(self) -> None:
        if self.missing:
            say(f"{self.missing} bytes are missing: only the first and the last of an output are kept")


def _told(exec_id: str, shown: _Shown, result: ExecResult | None) -> dict[str, object]:
    written = {name: data.decode("utf-8", "replace") for name, data in shown.kept.items()}
    ended = result.as_tool() if result else {"ok": True}
    return {**ended, "exec_id": exec_id, "done": result is not None, **written, "missing_bytes": shown.missing}

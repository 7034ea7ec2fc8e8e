"""`holdfast exec`: a command in a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from . import _options
from ._common import Command, Key, execute, print_json, say, takes_key
from ._live import RING_BYTES, Live, conclude, source
from ._render import duration, size


@click.command(
    "exec",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples="""
        holdfast exec --workflow demo -- python3 -c 'print(6 * 7)'
        holdfast exec --workflow demo -c 'echo hello > a.txt && cat a.txt'
        seq 3 | holdfast exec --workflow demo -- wc -l
        holdfast exec --workflow demo -t 5 --cwd /tmp -e NAME=value --json -- pwd
        holdfast exec --workflow demo --detach -c 'sleep 1; echo done > done.txt'
    """,
)
@takes_key
@click.option("-c", "line", metavar="LINE", help="Run LINE with `sh -c` instead of a command.")
@click.option("--cwd", metavar="DIR", help="Folder to run in; else the workspace.")
@_options.env_option
@click.option("-u", "--user", metavar="USER", help="User of the sandbox, on engines that can switch.")
@_options.timeout_option
@click.option("-d", "--detach", is_flag=True, help="Let it run, and print its id, for `logs` and `kill`.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as an agent's tool gets it.")
@_options.verbose_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND...]")
def command(key: Key, words: Sequence[str], line: str | None, as_json: bool, **given: Any) -> int:
    """Run a command in a session that is open.

    What is piped in goes to the command; output is live, and the exit status is the command's own.
    """
    key.require()
    if (line is None) == (not words):
        raise click.UsageError("what shall run? Say -- COMMAND or -c LINE, one of them")
    env = _options.environment(given["env"])
    request = {"timeout": given["timeout"], "cwd": given["cwd"], "env": env, "user": given["user"]}
    what = list(words) if line is None else line

    async def start() -> int:
        async with key.find() as session:
            process = await session.start(what, **request)
        if as_json:
            print_json({"ok": True, "exec_id": process.id})
        else:
            click.echo(process.id)
        return 0

    async def work() -> int:
        live = None if as_json else Live()
        shown: dict[str, Any] = {}
        if live:
            shown = {"on_output": live.show, "max_stdout_bytes": RING_BYTES, "max_stderr_bytes": RING_BYTES}
        async with key.find() as session:
            result = await session.exec(what, stdin=source(), **request, **shown)
        if as_json:
            print_json(result.as_tool())
        if live:
            live.confess(result)
        if given["verbose"]:
            say(
                f"{session.key} on {session.effective.engine}, {duration(result.duration_ms / 1000)}, "
                f"CPU {duration(result.cpu_ms / 1000)}, peak memory {size(result.peak_memory_bytes)}"
            )
        if result.left_count:
            say(f"{result.left_count} processes were left behind and killed: {', '.join(result.left_processes)}")
        return conclude(result, _limit(given["timeout"]))

    return execute(start if given["detach"] else work, as_json=as_json)


def _limit(asked: float | None) -> float | None:
    """The time that the program had, as far as we asked for one."""
    from ..config import settings
    from ..policy import timeout

    return None if asked is None else timeout(asked, settings())

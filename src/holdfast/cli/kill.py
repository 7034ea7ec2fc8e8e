"""`holdfast kill`: end a command of a session, with all that it started."""

from __future__ import annotations

import signal

import click

from ._common import Command, Key, execute, takes_key


def _number(_: click.Context, __: click.Parameter, text: str) -> int:
    name = text.upper().removeprefix("SIG")
    try:
        return int(signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name}"])
    except (KeyError, ValueError):
        raise click.BadParameter(f"there is no signal {text!r}; write it as in TERM or 15") from None


@click.command(
    "kill",
    cls=Command,
    context_settings={"allow_interspersed_args": True},
    examples="""
        holdfast kill --workflow demo x1
        holdfast kill --workflow demo -s TERM x1
    """,
)
@takes_key
@click.option("-s", "--signal", "number", callback=_number, default="KILL", metavar="SIGNAL", help="Else KILL.")
@click.argument("exec_id", metavar="EXEC")
def command(key: Key, number: int, exec_id: str) -> int:
    """End a detached command and all that it started.

    With a signal other than KILL, each of its processes gets that signal instead.

    Killing one that has ended is fine. `holdfast ps --execs` lists what runs.
    """
    key.require()

    async def work() -> int:
        async with key.find() as session:
            await session.process(exec_id).kill(number)
        return 0

    return execute(work)

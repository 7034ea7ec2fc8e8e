"""What all commands share: one way to run, to be interrupted, to fail, and to name a session."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from . import _complete

if TYPE_CHECKING:
    from .. import aio

TIMED_OUT = 124
FAILED = 125
"""the sandbox failed, so there is no status of a program"""
BROKEN_PIPE = 128 + signal.SIGPIPE

Decorated = Callable[..., Any]


class Command(click.Command):
    """A command whose help ends with examples. A test runs them."""

    def __init__(self, *args: Any, examples: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._examples = [line.strip() for line in examples.strip().splitlines()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self._examples:
                formatter.write(f"  {line}\n")


def say(message: str) -> None:
    """One or more lines for the person at the terminal; stdout belongs to the program."""
    for line in message.splitlines():
        click.echo(f"{click.style('holdfast:', bold=True)} {errors.printable(line)}", err=True)


def print_json(what: Any) -> None:
    click.echo(json.dumps(what, indent=2 if sys.stdout.isatty() else None))


def reader_gone() -> int:
    """Nobody reads our output any more: no further word, and the status that other programs end with then."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return BROKEN_PIPE


def execute(work: Callable[[], Awaitable[int]], *, as_json: bool = False) -> int:
    """Run a command's work and give its exit status.

    SIGINT, SIGTERM and SIGHUP cancel the work, which cleans up; a second one ends the process at once.
    """
    import anyio

    try:
        return anyio.run(_interruptible, work)
    except BrokenPipeError:  # `| head`: nobody reads on, and that is fine
        return reader_gone()
    except errors.SandboxError as error:
        if as_json:
            print_json(_told(error))
        else:
            say(error.message)
        return FAILED


def _told(error: errors.SandboxError) -> dict[str, Any]:
    told = error.as_tool()
    if isinstance(error, errors.ConfigError):
        told["mistakes"] = [asdict(one) for one in error.mistakes]
    return told


async def _interruptible(work: Callable[[], Awaitable[int]]) -> int:
    import anyio

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught: list[int] = []
    scope = anyio.CancelScope()
    failure: list[BaseException] = []
    status = FAILED
    # What the caller ignores (nohup, a job in the background) stays ignored.
    heard = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]

    async def listen(signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if caught:
                os._exit(128 + number)
            caught.append(number)
            scope.cancel()

    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(*heard) as signals:
            tasks.start_soon(listen, signals)
            with scope:
                try:
                    status = await work()
                except Exception as error:  # noqa: BLE001  raised below, outside the group that would wrap it
                    failure.append(error)
            tasks.cancel_scope.cancel()
    if caught:
        return 128 + caught[0]
    if failure:
        raise failure[0]
    return status


@dataclass(frozen=True, slots=True)
class Key:
    """Which session a command is about, and on which engine to look for it."""

    workflow: str | None
    agent: str | None
    session: str | None
    engine: str | None

    @property
    def given(self) -> bool:
        return bool(self.workflow or self.agent or self.session)

    @property
    def parts(self) -> dict[str, str | None]:
        return {"workflow": self.workflow, "agent": self.agent, "session": self.session}

    @property
    def words(self) -> str:
        """As one types it."""
        return " ".join(f"--{name} {shlex.quote(part)}" for name, part in self.parts.items() if part)

    def require(self) -> None:
        if not self.given:
            raise click.UsageError("say which session: --workflow, --agent or --session; `holdfast ps` lists them")

    @asynccontextmanager
    async def find(self) -> AsyncIterator[aio.Session]:
        """The session, which must be there; on whichever engine it was opened."""
        async with AsyncExitStack() as stack:
            yield await self._enter(stack)

    async def _enter(self, stack: AsyncExitStack) -> aio.Session:
        from .. import aio
        from ..code.keys import resolve

        opened = aio.open_session(
            workflow=self.workflow, agent=self.agent, session=self.session, engine=self.engine, create=False
        )
        try:
            return await stack.enter_async_context(opened)
        except errors.SessionNotFound:
            key = resolve(self.workflow, self.agent, self.session)
            raise errors.SessionNotFound(
                f"there is no session {key}; open it first: holdfast open {self.words}"
            ) from None


def takes_key(callback: Decorated) -> Decorated:
    """Adds the options that name a session; the callback gets them as `key`."""

    @click.option("--workflow", metavar="ID", envvar="HOLDFAST_WORKFLOW", help="The workflow that shares it.")
    @click.option("--agent", metavar="ID", envvar="HOLDFAST_AGENT", help="The agent whose own it is.")
    @click.option("--session", metavar="NAME", envvar="HOLDFAST_SESSION", help="Its name, alone or within those.")
    @engine_option
    @functools.wraps(callback)
    def with_key(
        *, workflow: str | None, agent: str | None, session: str | None, engine: str | None, **rest: Any
    ) -> Any:
        return callback(key=Key(workflow, agent, session, engine), **rest)

    return with_key


engine_option = click.option(
    "--engine", metavar="ENGINE", shell_complete=_complete.engines, help="Engine; else the best that works here."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

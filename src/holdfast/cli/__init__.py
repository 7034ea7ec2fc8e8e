"""The command line. Each command is a module of its own, imported when it is called: `--help` must be quick."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from typing import NoReturn

import click

from .. import __version__
from ._common import FAILED, reader_gone, say

_COMMANDS = (
    "run",
    "open",
    "exec",
    "logs",
    "kill",
    "cp",
    "ls",
    "rm",
    "stage",
    "publish",
    "files",
    "close",
    "ps",
    "doctor",
    "config",
    "sweep",
    "agent",
    "tools",
    "mcp",
    "completion",
)


class LazyGroup(click.Group):
    """Finds a command `x` in the module `holdfast.cli.x`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found = importlib.import_module(f".{cmd_name}", __name__).command
        assert isinstance(found, click.Command)
        return found


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A key names a session: --workflow, --agent or --session, or HOLDFAST_WORKFLOW, HOLDFAST_AGENT, "
    "HOLDFAST_SESSION. Exit status: the program's own; 124 timeout; 125 holdfast failed; 2 wrong usage.",
)
@click.version_option(__version__, "-V", "--version", prog_name="holdfast")
@click.option(
    "--otel",
    type=click.Choice(("console", "otlp")),
    help="Show spans, metrics and log events on stderr, or send them by OTLP, as OTEL_EXPORTER_OTLP_* say.",
)
@click.pass_context
def group(ctx: click.Context, otel: str | None) -> None:
    """A safe place for LLM agents to run code."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if otel or any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        from ._otel import set_up

        set_up(ctx, otel, os.environ)


def main() -> NoReturn:
    """The entry point: every way to end becomes one exit status."""
    try:
        status = _invoke()
        sys.stdout.flush()
    except BrokenPipeError:
        status = reader_gone()
    sys.exit(status)


def _invoke() -> int:
    try:
        status = group.main(prog_name="holdfast", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except Exception:  # noqa: BLE001  a bug of ours must not look like a program that ended with 1
        traceback.print_exc()
        say("this is a bug in holdfast; please report it with the lines above")
        return FAILED
    return status if isinstance(status, int) else 0

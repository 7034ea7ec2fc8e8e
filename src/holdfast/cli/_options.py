"""Options that `run`, `open` and `exec` share, and what becomes of them."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from . import _complete
from ._common import Decorated

if TYPE_CHECKING:
    from ..config import Limits

    _Type = click.ParamType[float]
else:
    _Type = click.ParamType  # generic in newer versions only

_LIMITS = ("memory_mb", "workspace_mb", "processes", "cpu_millicores")


class _Positive(_Type):
    """A number above zero; click's own ranges write `[x>0]` into the help."""

    name = "number"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = self._kind(value)
        except ValueError:
            number = 0
        if not 0 < number < math.inf:
            self.fail(f"{value!r} is not a positive number", param, ctx)
        return number


seconds = _Positive(float)
runtime_option = functools.partial(
    click.option, "-r", "--runtime", metavar="RUNTIME", shell_complete=_complete.runtimes
)
env_option = click.option(
    "-e", "--env", metavar="NAME=VALUE", multiple=True, help="Set a variable; NAME alone passes on this shell's."
)
timeout_option = click.option(
    "-t", "--timeout", type=seconds, metavar="SECONDS", help="Kill the program after so long (exit status 124)."
)
network_option = click.option("--network", is_flag=True, help="Ask for network; the operator must allow it.")
image_option = click.option("--image", metavar="IMAGE", help="Container image, on engines that have them.")
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Say on stderr where it ran, how long, and how much it took."
)


def limit_options(callback: Decorated) -> Decorated:
    """Adds the options for limits; `limits` turns them into what the library takes."""
    for name, text in (
        ("--cpu-millicores", "CPU time per second, in thousandths."),
        ("--processes", "Processes and threads at once."),
        ("--workspace-mb", "Size of the workspace."),
        ("--memory-mb", "Memory of all processes."),
    ):
        callback = click.option(name, type=_Positive(int), metavar="N", help=text)(callback)
    return callback


def limits(given: dict[str, Any]) -> Limits | None:
    """The limits among the options of a command; None when none was given."""
    from ..config import Limits

    asked = {name: given[name] for name in _LIMITS if given[name] is not None}
    return Limits(**asked) if asked else None


def environment(given: Sequence[str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for item in given:
        name, assigned, value = item.partition("=")
        if not name:
            raise click.UsageError(f"-e {item!r}: the name is missing; say -e NAME=VALUE")
        if not assigned and name not in os.environ:
            raise click.UsageError(f"-e {name}: this shell has no such variable; say -e {name}=VALUE")
        result[name] = value if assigned else os.environ[name]
    return result


def read_host_file(path: str | int, name: str) -> bytes:
    """All of a file of the host; never more than a sandbox would take, be it a pipe without end.

    Raises:
        InvalidRequest: it cannot be read.
        FileTooLarge: it is larger than a file in a sandbox may be.
    """
    from ..config import Limits

    limit = Limits().max_file_size_bytes or 0
    try:
        with open(path, "rb", closefd=not isinstance(path, int)) as file:
            size = os.fstat(file.fileno()).st_size  # 0 for a pipe
            content = file.read(limit + 1) if size <= limit else b""
    except OSError as error:
        raise errors.InvalidRequest(f"cannot read {name}: {error.strerror}") from error
    if max(size, len(content)) > limit:
        raise errors.FileTooLarge(f"{name} is larger than {limit} bytes, the limit of one file")
    return content


def place(folder: Path, path: str) -> Path:
    """Where a file of the sandbox goes beneath a folder of the host; its name was chosen by the program.

    Raises:
        PathNotAllowed: it would not be beneath.
    """
    target = folder / path
    if ".." in target.parts or Path(path).is_absolute() or not target.parent.resolve().is_relative_to(folder.resolve()):
        raise errors.PathNotAllowed(f"{path} would be written outside of {folder}")
    return target

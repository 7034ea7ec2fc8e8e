"""A live line on stderr while an image is pulled: for people at a terminal, and for nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .. import errors
from ._render import size

if TYPE_CHECKING:
    from ..abc import OnProgress, Progress

_NARROW, _WIDE = 8, 24
"""cells of a bar"""
_CLEAR = "\r\x1b[K"


@contextmanager
def pulling(*, quiet: bool) -> Iterator[OnProgress | None]:
    """What to give as `on_progress`; the line is gone when the block is left."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    drawn = ""

    def show(progress: Progress) -> None:
        nonlocal drawn
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        line = _line(progress, columns - 1)
        if line != drawn:
            drawn = line
            click.echo(_CLEAR + line, nl=False, err=True, color=True)

    try:
        yield show
    finally:
        if drawn:
            click.echo(_CLEAR, nl=False, err=True, color=True)


def _line(progress: Progress, columns: int) -> str:
    what = errors.printable(progress.what)
    if not progress.total_bytes:
        return f"{what} …"[:columns]
    amount = f"{size(progress.done_bytes)} of {size(progress.total_bytes)}"
    cells = min(_WIDE, columns - len(what) - len(amount) - 4)
    if cells < _NARROW:
        return f"{what}  {amount}"[:columns]
    full = cells * progress.done_bytes // progress.total_bytes
    return f"{what}  {'█' * full}{'░' * (cells - full)}  {amount}"

"""A bar on stderr for what takes longer than a moment, and only where somebody looks at it."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from ..errors import printable

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_MOMENT = 0.5
"""Seconds without a bar: what is done by then needs none."""


class Bar:
    """Call it with the bytes that are done and those that there are."""

    def __init__(self, label: str) -> None:
        self._label = printable(label)
        self._due = time.monotonic() + _MOMENT if sys.stderr.isatty() else float("inf")
        self._shown: ProgressBar[int] | None = None
        self._done = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.render_finish()

    def __call__(self, done: int, total: int | None) -> None:
        if self._shown is None and total and time.monotonic() > self._due:
            # Drawn a hundred times at most: a terminal is slower than a copy.
            self._shown = click.progressbar(
                length=total, label=self._label, file=sys.stderr, update_min_steps=max(1, total // 100)
            )
        if self._shown is not None:
            self._shown.update(done - self._done)
            self._done = done

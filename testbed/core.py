"""What every part uses: the error with a next step, and the report that prints one line per step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, TextIO


class TestbedError(Exception):
    """Something cannot be had on this machine; says what, and what to do about it."""

    __test__: ClassVar[bool] = False  # pytest takes the name for a class of tests

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(what, next_step)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        end = "" if self.what.endswith((".", "?", "!")) else "."
        return f"{self.what}{end} Next: {self.next_step}."


class Report:
    """Prints one line per step: its part, what was done, how long it took. Safe to use from threads."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._lock = threading.Lock()

    def line(self, part: str, what: str, took: str = "") -> None:
        with self._lock:
            print(f"{part:<11} {what:<76} {took:>8}".rstrip(), file=self._out, flush=True)

    @contextmanager
    def step(self, part: str, what: str, *, expect: str | None = None) -> Iterator[Step]:
        """Times a step and prints its line at the end; one that takes minutes is announced with `expect`."""
        if expect:
            self.line(part, f"{what}: {expect} …")
        step = Step(what)
        start = time.monotonic()
        try:
            yield step
        except BaseException:
            self.line(part, f"{step.what}: failed", _seconds(start))
            raise
        self.line(part, step.what, _seconds(start))


class Step:
    """A running step; `what` may be made more precise before its line is printed."""

    def __init__(self, what: str) -> None:
        self.what = what


def _seconds(start: float) -> str:
    return f"{time.monotonic() - start:.1f} s"

"""Bytes between this process's own stdin, stdout and stderr and a program, without blocking the event loop.

A stalled terminal or pipe must not stop the loop: Ctrl-C has to work while somebody pages through the output.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ._common import FAILED, TIMED_OUT, say

if TYPE_CHECKING:
    from ..results import ExecResult

_PIECE_BYTES = 64 << 10
RING_BYTES = 8 << 20
"""Output that the sandbox keeps for us while our reader is slow; more than that is lost, and said to be."""


def source() -> AsyncIterator[bytes] | None:
    """What is piped into this process; None at a terminal, or when stdin is closed."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return None
    if os.isatty(0):
        return None
    return _pieces(waits=stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _pieces(waits: bool) -> AsyncIterator[bytes]:
    import anyio

    while True:
        if waits:  # files and devices such as /dev/null are always ready
            await anyio.wait_readable(0)
        try:
            piece = os.read(0, _PIECE_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(0)
            continue
        except OSError:
            return
        if not piece:
            return
        yield piece


class Sink:
    """A file descriptor to write to, as it takes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.written = 0
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:  # closed by the caller: `>&-`
            self._closed, self._waits = True, False
            return
        self._closed = False
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self.written += len(data)
        if self._closed:
            return
        import anyio

        view = memoryview(data)
        while view:
            if self._waits and not self._ready.poll(0):
                await anyio.wait_writable(self._descriptor)
            try:
                # A pipe that is ready takes PIPE_BUF bytes without blocking, and maybe not one more.
                view = view[os.write(self._descriptor, view[: select.PIPE_BUF] if self._waits else view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)


class Live:
    """Shows a program's output while it runs."""

    def __init__(self) -> None:
        self._sinks = {"stdout": Sink(1), "stderr": Sink(2)}

    async def show(self, stream: str, data: bytes) -> None:
        await self._sinks[stream].write(data)

    def confess(self, result: ExecResult) -> None:
        """Say what was not shown."""
        for stream, total in (("stdout", result.stdout_total_bytes), ("stderr", result.stderr_total_bytes)):
            if missing := total - self._sinks[stream].written:
                say(f"{missing} of {total} bytes of {stream} are missing: they were written faster than they were read")


def conclude(result: ExecResult, limit: float | None) -> int:
    """The exit status of a program that ended, with a line on stderr if it did not end by itself."""
    cause = result.end_cause.value
    if cause == "timeout":
        say(f"timeout: the program was killed after {limit:g} s" if limit else "timeout: the program was killed")
        return TIMED_OUT
    if cause != "completed":
        say(f"{cause}: {_CAUSES.get(cause, 'the program was ended')}")
    if result.exit_code is not None:
        return result.exit_code
    return FAILED if result.signal is None else 128 + result.signal


_CAUSES = {
    "cancelled": "the call was cancelled, and the program was killed",
    "killed": "somebody killed the program",
    "oom": "the program reached the memory limit",
    "output_limit": "the program wrote more than it may, and was killed",
    "disk_full": "the program failed while the workspace was full",
    "pids_limit": "the program reached the limit on processes",
    "lost": "the sandbox went away; nobody knows how the program ended",
}

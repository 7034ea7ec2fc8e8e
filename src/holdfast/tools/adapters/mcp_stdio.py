"""MCP over this process's stdin and stdout, such that a signal ends it while it waits for either.

The SDK's own transport reads in a thread, which only the end of stdin can wake; it is given streams that wait in the
event loop instead.
"""

from __future__ import annotations

import codecs
import os
import select
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_PIECE_BYTES = 64 << 10


async def serve(server: Server[Any]) -> None:
    """Serve one client, until it closes our stdin or no longer reads our stdout."""
    with _wire() as (stdin, stdout):
        try:
            # What the SDK asks of its files is no more than this.
            lines, writer = cast(Any, _Lines(stdin)), cast(Any, _Writer(stdout))
            async with stdio_server(lines, writer) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
        except* BrokenPipeError:  # nobody reads any more: the end, as if stdin had been closed
            pass


@contextmanager
def _wire() -> Iterator[tuple[int, int]]:
    """stdin and stdout for the protocol alone: whatever else is printed in this process goes to stderr."""
    stdin, stdout, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        yield stdin, stdout
    finally:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for each in (stdin, stdout, nothing):
            os.close(each)


class _Lines:
    """The lines of a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waits = _can_wait(descriptor)

    async def __aiter__(self) -> AsyncIterator[str]:
        decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), list[str]()
        while piece := await self._read():
            *lines, last = decoder.decode(piece).split("\n")
            for line in lines:
                yield "".join([*rest, line])
                rest.clear()
            rest.append(last)

    async def _read(self) -> bytes:
        while True:
            if self._waits:
                await anyio.wait_readable(self._descriptor)
            try:
                return os.read(self._descriptor, _PIECE_BYTES)
            except BlockingIOError:  # another process that shares the pipe was quicker
                continue


class _Writer:
    """Writes to a file descriptor as much as it takes, and waits for the rest."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waits = _can_wait(descriptor)

    async def write(self, text: str) -> None:
        rest = memoryview(text.encode())
        while rest:
            if self._waits:
                await anyio.wait_writable(self._descriptor)
            try:
                # A pipe that is ready takes PIPE_BUF bytes without blocking, and maybe not one more.
                rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF] if self._waits else rest) :]
            except BlockingIOError:
                continue

    async def flush(self) -> None:
        pass


def _can_wait(descriptor: int) -> bool:
    """Files, and devices such as /dev/null, are always ready, and an event loop does not take them."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)

"""A byte stream over a plain socket that tries first and waits only if it must.

anyio's own socket streams pass through the event loop before each call, which costs as much as the guest's answer.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - for a shorter way there; trio takes anyio's
import contextlib
import socket

import anyio
import anyio.abc
import anyio.lowlevel

_MAX_EAGER = 16
_MAX_UNWANTED = 3


class _Reader:
    """Waits for a socket. Under asyncio it stays with the event loop between waits: to come and go each time, as anyio
    does, takes as long as all else that we do for a call."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unwanted = 0

    async def wait(self) -> None:
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            await anyio.wait_readable(self._raw)
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.stop()
            loop.add_reader(self._raw, self._readable)
            self._loop = loop
        self._unwanted = 0
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _readable(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            return
        # The loop looks once more before the one that it woke has read. But what nobody reads would not let it sleep.
        self._unwanted += 1
        if self._unwanted == _MAX_UNWANTED:
            self.stop()

    def stop(self) -> None:
        """Leave the event loop; whoever waits goes on."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._raw)
        self._loop = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class SocketStream(anyio.abc.ByteStream):
    """Owns a connected stream socket."""

    def __init__(self, raw: socket.socket) -> None:
        raw.setblocking(False)
        self._raw = raw
        self._closed = False
        self._eager = 0  # receives since the event loop last had its turn
        self._reader = _Reader(raw)

    @classmethod
    def connect(cls, path: str) -> SocketStream:
        """To a unix socket: on one machine that does not block, the listener's queue takes it or refuses."""
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            raw.connect(path)
        except BaseException:
            raw.close()
            raise
        return cls(raw)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._eager >= _MAX_EAGER:
            # A sender that is faster than we are must not own the loop. Before anything is taken from the socket: who
            # is cancelled here must not lose what he has read.
            self._eager = 0
            await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                self._eager = 0
                await self._reader.wait()
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            self._eager = _MAX_EAGER if len(data) == max_bytes else self._eager + 1
            return data

    def send_nowait(self, item: bytes | memoryview) -> int:
        """Send what the socket takes at once; how much that was."""
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            return self._raw.send(item)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            sent = self.send_nowait(view)
            view = view[sent:]
            if not sent:
                await anyio.wait_writable(self._raw)

    async def send_eof(self) -> None:
        self._raw.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.stop()
            anyio.notify_closing(self._raw)
            with contextlib.suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)  # somebody else may hold a copy of the descriptor
            self._raw.close()
        await anyio.lowlevel.checkpoint()

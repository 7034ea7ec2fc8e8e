"""A byte stream over a plain socket that tries first and waits only if it must.

anyio's own socket streams pass through the event loop before each call, which costs as much as the guest's answer.
"""

from __future__ import annotations

import contextlib
import socket

import anyio
import anyio.abc
import anyio.lowlevel

_MAX_EAGER = 16


class SocketStream(anyio.abc.ByteStream):
    """Owns a connected stream socket."""

    def __init__(self, raw: socket.socket) -> None:
        raw.setblocking(False)
        self._raw = raw
        self._closed = False
        self._eager = 0  # receives since the event loop last had its turn

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
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                self._eager = 0
                await anyio.wait_readable(self._raw)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            self._eager += 1
            if len(data) == max_bytes or self._eager == _MAX_EAGER:
                self._eager = 0
                await anyio.lowlevel.checkpoint()  # a sender that is faster than we are must not own the loop
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
            anyio.notify_closing(self._raw)
            with contextlib.suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)  # somebody else may hold a copy of the descriptor
            self._raw.close()
        await anyio.lowlevel.checkpoint()

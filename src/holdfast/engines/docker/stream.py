"""The byte stream to a guest inside a container: one hijacked exec of `guest dial`, or PID 1's own stdin and stdout.

What comes back is cut into pieces by the daemon, each behind eight bytes that name its stream and its length.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.abc

_HEADER = 8
_STDOUT, _STDERR = 1, 2
_MAX_STDERR = 4096


class MultiplexedStream(anyio.abc.ByteStream):
    """stdin and stdout of a program. What it says on stderr is kept for an error message."""

    def __init__(self, raw: anyio.abc.ByteStream, received: bytes = b"") -> None:
        self._raw = raw
        self._buffer = bytearray(received)
        self._kind = 0
        self._left = 0  # bytes of the current piece that are still to come
        self._speaker = ""
        self.stderr = bytearray()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            if self._left == 0:
                if len(self._buffer) >= _HEADER:
                    self._kind = self._buffer[0]
                    self._left = int.from_bytes(self._buffer[4:_HEADER], "big")
                    del self._buffer[:_HEADER]
                    if self._kind not in (_STDOUT, _STDERR):
                        raise anyio.BrokenResourceError
                    continue
            elif self._buffer:
                piece = bytes(self._buffer[: min(self._left, max_bytes)])
                del self._buffer[: len(piece)]
                self._left -= len(piece)
                if self._kind == _STDOUT and not self._is_of_the_daemon(piece):
                    return piece
                self.stderr += piece[: _MAX_STDERR - len(self.stderr)]
                continue
            self._buffer += await self._raw.receive(max_bytes)

    def _is_of_the_daemon(self, piece: bytes) -> bool:
        """A program that cannot be started, because its container ends just now, is told of on its stdout. A guest's
        first frame is shorter than 16 MB, so that its first byte is 0."""
        if self._speaker == "":
            self._speaker = "guest" if piece[0] == 0 else "daemon"
        return self._speaker == "daemon"

    def send_nowait(self, item: bytes) -> int:
        """Send what can be sent at once; TLS can promise nothing."""
        send: Callable[[bytes], int] | None = getattr(self._raw, "send_nowait", None)
        return send(item) if send is not None else 0

    async def send(self, item: bytes) -> None:
        await self._raw.send(item)

    async def send_eof(self) -> None:
        await self._raw.send_eof()

    async def aclose(self) -> None:
        await self._raw.aclose()

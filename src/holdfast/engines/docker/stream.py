"""The byte stream to a guest inside a container: one hijacked exec of `guest dial`.

What comes back is cut into pieces by the daemon, each behind eight bytes that name its stream and its length.
"""

from __future__ import annotations

import anyio
import anyio.abc

from ..sockets import SocketStream

_HEADER = 8
_STDOUT, _STDERR = 1, 2
_MAX_STDERR = 4096


class ExecStream(anyio.abc.ByteStream):
    """stdin and stdout of an exec. What it says on stderr is kept for an error message."""

    def __init__(self, raw: SocketStream) -> None:
        self._raw = raw
        self._buffer = bytearray()
        self._kind = 0
        self._left = 0  # bytes of the current piece that are still to come
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
                if self._kind == _STDOUT:
                    return piece
                self.stderr += piece[: _MAX_STDERR - len(self.stderr)]
                continue
            self._buffer += await self._raw.receive(max_bytes)

    def send_nowait(self, item: bytes) -> int:
        return self._raw.send_nowait(item)

    async def send(self, item: bytes) -> None:
        await self._raw.send(item)

    async def send_eof(self) -> None:
        await self._raw.send_eof()

    async def aclose(self) -> None:
        await self._raw.aclose()

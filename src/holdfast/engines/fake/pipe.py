"""A byte stream in memory: two ends, each read what the other sends."""

from __future__ import annotations

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_PIECES = 16
"""sent and not yet received: a reader that stalls stalls the sender"""


class MemoryStream(anyio.abc.ByteStream):
    """One end. Make both with `pair`."""

    def __init__(self, inward: MemoryObjectReceiveStream[bytes], outward: MemoryObjectSendStream[bytes]) -> None:
        self._inward, self._outward = inward, outward
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = self._rest or await self._inward.receive()
        self._rest = data[max_bytes:]
        return data[:max_bytes]

    async def send(self, item: bytes) -> None:
        await self._outward.send(bytes(item))

    async def send_eof(self) -> None:
        self._outward.close()

    async def aclose(self) -> None:
        self._inward.close()
        self._outward.close()


def pair() -> tuple[MemoryStream, MemoryStream]:
    """Two ends of one stream."""
    one_send, one_receive = anyio.create_memory_object_stream[bytes](_PIECES)
    two_send, two_receive = anyio.create_memory_object_stream[bytes](_PIECES)
    return MemoryStream(one_receive, two_send), MemoryStream(two_receive, one_send)

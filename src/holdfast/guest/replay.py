"""The byte stream to a guest that is started when the host has said all: for engines that take a request and give an
answer, and have nothing in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import anyio.lowlevel

Deliver = Callable[[bytes, int], Awaitable[bytes]]
"""Takes the host's half of the conversation and how long the guest's half may be; gives the guest's half."""


class ReplayStream(anyio.abc.ByteStream):
    """Keeps what is sent; when the host wants to hear something, the whole of it is delivered."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._said = bytearray()
        self._answer: memoryview | None = None
        self.max_answer_bytes = 1 << 20

    def send_nowait(self, item: bytes) -> int:
        if self._answer is not None:
            raise anyio.BrokenResourceError  # the guest is gone: what it was not told, it did not hear
        self._said += item
        return len(item)

    async def send(self, item: bytes) -> None:
        self.send_nowait(item)

    async def send_eof(self) -> None:
        return

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._answer is None:
            said, self._said = bytes(self._said), bytearray()
            self._answer = memoryview(b"")
            self._answer = memoryview(await self._deliver(said, self.max_answer_bytes))
        if not self._answer:
            raise anyio.EndOfStream
        piece = bytes(self._answer[:max_bytes])
        self._answer = self._answer[max_bytes:]
        return piece

    async def aclose(self) -> None:
        self._said.clear()
        await anyio.lowlevel.checkpoint()

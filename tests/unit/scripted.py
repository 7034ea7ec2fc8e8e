"""A guest in a test's hands: the other end of a connection, which says what the test wants, true or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.lowlevel

from holdfast.guest import protocol
from holdfast.guest.client import GuestClient
from holdfast.guest.command import Command
from holdfast.guest.connection import Connection, frame
from holdfast.guest.protocol import HEADER, Frame, Kind

HELLO = protocol.GuestHello(protocol=1, window=1 << 20, features=[], workspace="/workspace", arch="amd64")
COMMAND = Command(argv=("true",), env={}, timeout=5, stdout_cap_bytes=1000, stderr_cap_bytes=1000)
_NOTHING = protocol.StreamCount(total_bytes=0, head_bytes=0, tail_bytes=0)
ENDED = protocol.ExecEnded(
    exec_id="x1",
    end_cause=protocol.EndCause.COMPLETED,
    exit_code=0,
    duration_ms=1,
    cpu_ms=1,
    peak_memory_bytes=1,
    stdout=_NOTHING,
    stderr=_NOTHING,
    left_count=0,
    left=[],
)


class Memory(anyio.abc.ByteStream):
    """The host's end of a stream in memory."""

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.sent = bytearray()
        self.ended = False
        self.closed = False
        self._news = anyio.Event()

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def wait(self) -> None:
        await self._news.wait()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self.incoming:
            if self.closed:
                raise anyio.ClosedResourceError
            if self.ended:
                raise anyio.EndOfStream
            await self.wait()
        data = bytes(self.incoming[:max_bytes])
        del self.incoming[:max_bytes]
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self.closed:
            raise anyio.ClosedResourceError
        self.sent += item
        self.tell()

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed = True
        self.tell()


class Guest:
    """The guest's end."""

    def __init__(self, wire: Memory) -> None:
        self.wire = wire

    def raw(self, data: bytes) -> None:
        self.wire.incoming += data
        self.wire.tell()

    def send(self, stream: int, kind: Kind, payload: bytes = b"") -> None:
        self.raw(frame(stream, kind, payload))

    def say(self, stream: int, message: Frame) -> None:
        self.send(stream, Kind.MESSAGE, message.model_dump_json(exclude_none=True).encode())

    def end(self) -> None:
        self.wire.ended = True
        self.wire.tell()

    async def hear(self) -> tuple[int, Kind, bytes]:
        """The next frame of the host."""
        sent = self.wire.sent
        while len(sent) < HEADER.size or len(sent) < HEADER.size + HEADER.unpack_from(sent)[0]:
            await self.wire.wait()
        length, stream, kind = HEADER.unpack_from(sent)
        payload = bytes(sent[HEADER.size : HEADER.size + length])
        del sent[: HEADER.size + length]
        return stream, Kind(kind), payload


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[GuestClient, Guest]]:
    """A client, and a guest that has greeted it."""
    guest = Guest(Memory())
    guest.say(0, HELLO)
    client = GuestClient(await Connection.open(guest.wire))
    await guest.hear()
    with anyio.fail_after(20):
        yield client, guest
    await client.aclose()

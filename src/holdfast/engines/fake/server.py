"""The guest's side of a connection, in Python: frames, credit, one reply for each stream. See `protocol.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
from pydantic import ValidationError

from ... import errors
from ...guest import protocol
from ...guest.connection import frame
from ...guest.protocol import HEADER, Kind
from .sandbox import FakeSandbox

_MAX_PAYLOAD = {
    Kind.MESSAGE: protocol.MAX_MESSAGE_BYTES,
    Kind.DATA: protocol.MAX_DATA_BYTES,
    Kind.END: 0,
    Kind.WINDOW: 4,
    Kind.RESET: 0,
}
"""what a host may send"""

_GOODBYE = 0.01
"""seconds in which the last replies of an ending sandbox leave"""

Answer = Callable[["Stream", protocol.Request], Awaitable[protocol.Frame]]


class _Broken(Exception):
    """The host broke the protocol: the connection ends."""


class Stream:
    """One call: what the host sends to it, and a way to send that waits for the host's credit."""

    def __init__(self, number: int, connection: FakeConnection, credit: int) -> None:
        self.scope = anyio.CancelScope()
        """cancelled when the caller gives up"""
        self._number, self._connection, self._credit = number, connection, credit
        self._received: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._changed = anyio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def take(self, data: bytes) -> None:
        self._held += len(data)
        if self._held > protocol.WINDOW_BYTES:
            raise _Broken("the host sent more than its credit")
        self._received.append(data)
        self._change()

    def end(self) -> None:
        self._ended = True
        self._change()

    def grant(self, size: int) -> None:
        self._credit += size
        self._change()

    async def receive(self, max_bytes: int | None = None) -> bytes | None:
        """The next DATA of the host, at most so much of it; None after its END."""
        while not self._received:
            if self._ended:
                return None
            await self._changed.wait()
        data = self._received.popleft()
        if max_bytes is not None and len(data) > max_bytes:
            self._received.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._held -= len(data)
        if not self._ended:
            await self._connection.send(frame(self._number, Kind.WINDOW, len(data).to_bytes(4, "big")))
        return data

    async def send(self, kind: Kind, data: bytes) -> None:
        view = memoryview(data)
        while view:
            while self._credit <= 0:
                await self._changed.wait()
            size = min(len(view), self._credit, protocol.MAX_DATA_BYTES)
            self._credit -= max(size, protocol.FRAME_COST)
            await self._connection.send(frame(self._number, kind, view[:size]))
            view = view[size:]

    async def event(self, message: protocol.Frame) -> None:
        payload = message.model_dump_json(exclude_none=True).encode()
        while self._credit <= 0:
            await self._changed.wait()
        self._credit -= max(len(payload), protocol.FRAME_COST)
        await self._connection.send(frame(self._number, Kind.EVENT, payload))


class FakeConnection:
    """One host at the other end of `stream`."""

    def __init__(self, sandbox: FakeSandbox, stream: anyio.abc.ByteStream, answer: Answer) -> None:
        self._sandbox, self._stream, self._answer = sandbox, stream, answer
        self._buffer = bytearray()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._hello: protocol.HostHello

    async def serve(self) -> None:
        """Answer until the host is gone, breaks the protocol, or the sandbox ends. Never raises."""
        self._sandbox.connections += 1
        try:
            async with anyio.create_task_group() as calls:
                calls.start_soon(self._watch, calls.cancel_scope)
                try:
                    await self._greet()
                    while True:
                        received = await self._receive()
                        if self._sandbox.check_time():  # else `_watch` is about to hang up
                            self._dispatch(*received, calls)
                except (_Broken, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    if self._finishes():
                        await self._finish()
                calls.cancel_scope.cancel()
        finally:
            self._sandbox.connections -= 1
            await anyio.aclose_forcefully(self._stream)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while self._sandbox.check_time():
            await self._sandbox.news.wait()
        await anyio.sleep(_GOODBYE)
        scope.cancel()

    def _finishes(self) -> bool:
        return hasattr(self, "_hello") and self._hello.on_eof is protocol.OnEof.FINISH

    async def _finish(self) -> None:
        """The host has said all and waits for the answers."""
        for call in self._streams.values():
            call.end()
        while self._streams:
            await self._sandbox.news.wait()

    async def _greet(self) -> None:
        number, kind, payload = await self._receive()
        if number != 0 or kind is not Kind.MESSAGE:
            raise _Broken("the first frame is not a hello")
        try:
            self._hello = protocol.HostHello.model_validate_json(payload)
        except ValidationError as error:
            raise _Broken("the first frame is not a hello") from error
        await self.message(0, Kind.MESSAGE, self._sandbox.hello())
        if self._hello.protocol != protocol.PROTOCOL:
            raise _Broken("the host speaks another protocol")

    async def _receive(self) -> tuple[int, Kind, bytes]:
        """The next frame."""
        wanted = HEADER.size
        while True:
            if len(self._buffer) >= HEADER.size:
                length, number, kind = HEADER.unpack_from(self._buffer)
                if length > _MAX_PAYLOAD.get(kind, -1):
                    raise _Broken(f"a frame of kind {kind} and {length} bytes")
                wanted = HEADER.size + length
                if len(self._buffer) >= wanted:
                    payload = bytes(self._buffer[HEADER.size : wanted])
                    del self._buffer[:wanted]
                    return number, Kind(kind), payload
            self._buffer += await self._stream.receive()

    def _dispatch(self, number: int, kind: Kind, payload: bytes, calls: anyio.abc.TaskGroup) -> None:
        if kind is Kind.MESSAGE:
            if number <= self._last or len(self._streams) >= protocol.MAX_STREAMS:
                raise _Broken(f"stream {number} is not new, or one too many")
            self._last = number
            self._streams[number] = Stream(number, self, self._hello.window)
            calls.start_soon(self._serve_call, number, payload)
            return
        self._sandbox.touch()
        call = self._streams.get(number)
        if call is None:
            if number > self._last:
                raise _Broken(f"frame for stream {number}, which was never opened")
        elif kind is Kind.DATA:
            call.take(payload)
        elif kind is Kind.END:
            call.end()
        elif kind is Kind.WINDOW:
            call.grant(int.from_bytes(payload, "big"))
        else:
            call.scope.cancel()

    async def _serve_call(self, number: int, payload: bytes) -> None:
        """Do one call and send its one reply; a caller that gave up gets one too, when it is over."""
        call = self._streams[number]
        reply: protocol.Frame = protocol.Done()
        try:
            with call.scope:
                reply = await self._reply(call, payload)
        finally:
            del self._streams[number]
        await self.message(number, Kind.MESSAGE, reply)
        self._sandbox.news.tell()

    async def _reply(self, call: Stream, payload: bytes) -> protocol.Frame:
        try:
            return await self._answer(call, protocol.REQUESTS.validate_json(payload))
        except ValidationError as error:
            return _failure("invalid_request", f"the request does not fit: {error.error_count()} fields")
        except errors.SandboxError as error:
            return _failure(error.code, str(error))

    async def message(self, number: int, kind: Kind, message: protocol.Frame) -> None:
        await self.send(frame(number, kind, message.model_dump_json(exclude_none=True).encode()))

    async def send(self, data: bytes) -> None:
        """Send one whole frame. A host that is gone is noticed where it is read from."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            await anyio.sleep_forever()


def _failure(code: str, message: str) -> protocol.Failure:
    wire = message.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return protocol.Failure(code=protocol.ErrorCode(code), message=wire)

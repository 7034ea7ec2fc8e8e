"""Frames over one byte stream: many calls at once, each with its own credit, under asyncio and trio.

There is no task that reads in the background. A call that waits for a frame reads the stream itself and hands out
what belongs to others; when it has its own, it passes the reading on to somebody who still waits. So a connection
needs no task group, an idle one costs nothing, and a call costs no switch between tasks.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType

import anyio
import anyio.abc
from pydantic import ValidationError

from .. import errors
from . import protocol
from .protocol import HEADER, Kind

_SEND_PATIENCE = 30.0
"""Seconds in which the guest must take what is sent to it."""
_HELLO_PATIENCE = 20.0
_RESET_PATIENCE = 3.0
_RECEIVE_BYTES = 256 << 10
_MAX_QUEUED_FRAMES = 4096
_MAX_PAYLOAD: dict[int, int] = {
    Kind.MESSAGE: protocol.MAX_MESSAGE_BYTES,
    Kind.DATA: protocol.MAX_DATA_BYTES,
    Kind.DATA_ERR: protocol.MAX_DATA_BYTES,
    Kind.WINDOW: 4,
    Kind.END: 0,
    Kind.RESET: 0,
    Kind.EVENT: protocol.MAX_MESSAGE_BYTES,
}

Received = tuple[Kind, bytes]


class Connection:
    """The host's end. Make it with `Connection.open`."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._calls: dict[int, Call] = {}
        self._next_id = 1
        self._sending = anyio.Lock(fast_acquire=True)
        self._reading = False
        self._lost: errors.SandboxError | None = None
        self._credit = protocol.WINDOW_BYTES
        self.hello: protocol.GuestHello

    @classmethod
    async def open(cls, stream: anyio.abc.ByteStream) -> Connection:
        """Greet the guest at the other end of `stream`.

        Raises:
            ProtocolMismatch: the guest speaks another version.
            SessionLost: it does not answer, or the stream ends.
        """
        connection = cls(stream)
        mine = protocol.HostHello(
            protocol=protocol.PROTOCOL, window=protocol.WINDOW_BYTES, on_eof=protocol.OnEof.CANCEL
        )
        call = Call(connection, 0)
        connection._calls[0] = call
        try:
            with anyio.fail_after(_HELLO_PATIENCE):
                await connection.send(frame(0, Kind.MESSAGE, mine.model_dump_json().encode()))
                _, payload = await call.receive()
        except TimeoutError:
            raise errors.SessionLost(f"the guest did not answer within {_HELLO_PATIENCE:.0f} s") from None
        del connection._calls[0]
        try:
            connection.hello = protocol.GuestHello.model_validate_json(payload)
        except ValidationError as error:
            raise errors.ProtocolError("the guest's first words are not a hello") from error
        if connection.hello.protocol != protocol.PROTOCOL:
            raise errors.ProtocolMismatch(
                f"this sandbox has a guest of protocol {connection.hello.protocol}, holdfast speaks "
                f"{protocol.PROTOCOL}: close the session and open it again"
            )
        connection._credit = connection.hello.window
        return connection

    def call(self) -> Call:
        """A new stream, for one request."""
        if self._lost:
            raise self._lost
        call = Call(self, self._next_id, self._credit)
        self._calls[self._next_id] = call
        self._next_id += 1
        return call

    def forget(self, call: Call) -> None:
        self._calls.pop(call.id, None)

    @property
    def lost(self) -> bool:
        return self._lost is not None

    async def send(self, data: bytes) -> None:
        """Write whole frames. Half a frame would garble the rest, so a cancelled caller still finishes."""
        if self._lost:
            raise self._lost
        try:
            with anyio.fail_after(_SEND_PATIENCE, shield=True):
                async with self._sending:
                    await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            # The guest may have said why before it went: let the reader find out first.
            if not self._calls:
                raise self._fail("the connection to the sandbox broke while sending") from error
        except TimeoutError:
            raise self._fail("the sandbox takes no more data") from None

    async def pump(self, call: Call) -> None:
        """Wait until something happened to `call`; read for everybody if nobody else does."""
        if self._lost:
            raise self._lost
        if self._reading:
            await call.wait()
            return
        self._reading = True
        try:
            data = await self._stream.receive(_RECEIVE_BYTES)
        except anyio.EndOfStream:
            raise self._fail("the sandbox ended, or the connection to it was closed") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise self._fail("the connection to the sandbox broke") from error
        finally:
            self._reading = False
            self._pass_on(call)
        self._buffer += data
        try:
            self._dispatch()
        except errors.ProtocolError as error:
            self._fail(str(error), error)
            raise

    def _pass_on(self, but: Call) -> None:
        for other in self._calls.values():
            if other is not but and other.waiting:
                other.wake()
                return

    def _dispatch(self) -> None:
        at, size = 0, len(self._buffer)
        while size - at >= HEADER.size:
            length, stream, number = HEADER.unpack_from(self._buffer, at)
            if number not in _MAX_PAYLOAD or length > _MAX_PAYLOAD[number]:
                raise errors.ProtocolError(f"the guest sent a frame of kind {number} and {length} bytes")
            if size - at < HEADER.size + length:
                break
            start = at + HEADER.size
            at = start + length
            if call := self._calls.get(stream):
                call.take(Kind(number), bytes(self._buffer[start:at]))
            elif stream >= self._next_id:
                raise errors.ProtocolError(f"the guest sent a frame for stream {stream}, which was never opened")
        del self._buffer[:at]

    def _fail(self, reason: str, error: errors.SandboxError | None = None) -> errors.SandboxError:
        self._lost = self._lost or error or errors.SessionLost(reason)
        for call in self._calls.values():
            call.wake()
        return self._lost

    async def aclose(self) -> None:
        self._fail("the connection was closed", errors.SessionClosed("this session's connection was closed"))
        await anyio.aclose_forcefully(self._stream)


class Call:
    """One stream: a request, its data both ways, its reply. Leaving it early cancels the work in the guest."""

    def __init__(self, connection: Connection, number: int, credit: int = 0) -> None:
        self.id = number
        self._connection = connection
        self._queue: deque[Received] = deque()
        self._event: anyio.Event | None = None
        self._credit = credit
        self._unread = 0  # bytes of DATA that the guest sent and we did not give credit for yet
        self._answered = False

    async def __aenter__(self) -> Call:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._answered and not self._connection.lost:
                await self._reset()
        finally:
            self._connection.forget(self)

    async def _reset(self) -> None:
        """Cancel the work and wait, not for ever, until the guest says that nothing is left of it."""
        with anyio.move_on_after(_RESET_PATIENCE, shield=True):
            try:
                await self._connection.send(frame(self.id, Kind.RESET))
                while not self._answered:
                    await self.receive()
            except errors.SandboxError:
                return  # a lost connection cancels too

    @property
    def waiting(self) -> bool:
        return self._event is not None

    async def wait(self) -> None:
        self._event = anyio.Event()
        try:
            await self._event.wait()
        finally:
            self._event = None

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()

    def take(self, kind: Kind, payload: bytes) -> None:
        """A frame for this call arrived. A guest that floods is cut off: credit bounds DATA, a count the rest."""
        if kind is Kind.WINDOW:
            self._credit += int.from_bytes(payload, "big")
        else:
            if kind in (Kind.DATA, Kind.DATA_ERR):
                self._unread += len(payload)
            if self._unread > protocol.WINDOW_BYTES or len(self._queue) >= _MAX_QUEUED_FRAMES:
                raise errors.ProtocolError("the guest sent more than it was given credit for")
            self._queue.append((kind, payload))
        self.wake()

    async def request(self, message: protocol.Frame, data: bytes | None = None) -> None:
        """Send the request, with all of its data if it has some and it is short."""
        parts = [frame(self.id, Kind.MESSAGE, _encode(message))]
        rest = b""
        if data is not None:
            first, rest = data[: protocol.MAX_DATA_BYTES], data[protocol.MAX_DATA_BYTES :]
            if first:
                parts.append(frame(self.id, Kind.DATA, first))
                self._credit -= len(first)
            if not rest:
                parts.append(frame(self.id, Kind.END))
        await self._connection.send(b"".join(parts))
        if rest:
            await self.send_data(rest)
            await self.end_data()

    async def send_data(self, data: bytes | memoryview) -> bool:
        """Send DATA as credit allows. False: the guest has answered already and wants no more."""
        view = memoryview(data)
        while view:
            while self._credit <= 0:
                if self._has_answer():
                    return False
                await self._connection.pump(self)
            size = min(len(view), self._credit, protocol.MAX_DATA_BYTES)
            self._credit -= size
            await self._connection.send(frame(self.id, Kind.DATA, view[:size]))
            view = view[size:]
        return not self._has_answer()

    async def end_data(self) -> None:
        await self._connection.send(frame(self.id, Kind.END))

    def _has_answer(self) -> bool:
        return any(kind is Kind.MESSAGE for kind, _ in self._queue)

    async def receive(self) -> Received:
        """The next frame of this call; credit for DATA goes back to the guest."""
        while not self._queue:
            await self._connection.pump(self)
        kind, payload = self._queue.popleft()
        if kind in (Kind.DATA, Kind.DATA_ERR):
            if self._unread >= protocol.WINDOW_BYTES // 2 and not self._queue:
                granted, self._unread = self._unread, 0
                await self._connection.send(frame(self.id, Kind.WINDOW, granted.to_bytes(4, "big")))
        elif kind is Kind.MESSAGE:
            self._answered = True
        return kind, payload

    async def reply(self) -> protocol.Answer:
        """The next message, where no DATA is expected. Raises the error that a Failure stands for."""
        kind, payload = await self.receive()
        if kind is not Kind.MESSAGE:
            raise errors.ProtocolError("the guest sent data where an answer was due")
        return decode(payload)


def frame(stream: int, kind: Kind, payload: bytes | memoryview = b"") -> bytes:
    return HEADER.pack(len(payload), stream, kind) + payload


def _encode(message: protocol.Frame) -> bytes:
    payload = message.model_dump_json(exclude_none=True).encode()
    if len(payload) > protocol.MAX_MESSAGE_BYTES:
        raise errors.ArgumentTooLong("arguments and environment are over 4 MB: write them to a file")
    return payload


def decode(payload: bytes) -> protocol.Answer:
    """A message of the guest, checked. Raises the error that a Failure stands for."""
    try:
        answer = protocol.ANSWERS.validate_json(payload)
    except ValidationError as error:
        raise errors.ProtocolError("the guest sent a message that the protocol does not know") from error
    if isinstance(answer, protocol.Failure):
        raise errors.from_code(answer.code, answer.message)
    return answer

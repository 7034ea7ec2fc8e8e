"""Frames over one byte stream: many calls at once, each with its own credit, under asyncio and trio.

There is no task that reads in the background. A call that waits for a frame reads the stream itself and hands out
what belongs to others; when it has its own, it passes the reading on to somebody who still waits. So a connection
needs no task group, an idle one costs nothing, and a call costs no switch between tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
_REPLAY_WINDOW = 1 << 40
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
        # A stream that can try spares the usual call, which does not block, a scope and a turn of the event loop.
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        self._buffer = bytearray()
        self._calls: dict[int, Call] = {}
        self._next_id = 1
        self._sending = anyio.Lock(fast_acquire=True)
        self._reading = False
        self._lost: errors.SandboxError | None = None
        self._credit = protocol.WINDOW_BYTES
        self.window = protocol.WINDOW_BYTES
        self.hello: protocol.GuestHello

    @classmethod
    async def open(cls, stream: anyio.abc.ByteStream) -> Connection:
        """Greet the guest at the other end of `stream`.

        Raises:
            ProtocolMismatch: the guest speaks another version.
            SessionLost: it does not answer, or the stream ends.
        """
        connection = await cls.start(stream)
        try:
            await connection.greeted()
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return connection

    @classmethod
    async def start(cls, stream: anyio.abc.ByteStream, replay: bool = False) -> Connection:
        """Say hello and go on; `greeted` hears the guest's. In a replay nobody gives credit: both sides have enough."""
        connection = cls(stream)
        if replay:
            connection.window = connection._credit = _REPLAY_WINDOW
        mine = protocol.HostHello(
            protocol=protocol.PROTOCOL,
            window=connection.window,
            on_eof=protocol.OnEof.FINISH if replay else protocol.OnEof.CANCEL,
        )
        connection._calls[0] = Call(connection, 0)
        await connection.send(frame(0, Kind.MESSAGE, mine.model_dump_json().encode()))
        return connection

    async def greeted(self) -> None:
        """Wait for the guest's hello.

        Raises:
            ProtocolMismatch: the guest speaks another version.
            SessionLost: it does not answer, or the stream ends.
        """
        patience = None if self.window == _REPLAY_WINDOW else _HELLO_PATIENCE
        try:
            with anyio.fail_after(patience):
                _, payload = await self._calls[0].receive()
        except TimeoutError:
            raise errors.SessionLost(f"the guest did not answer within {_HELLO_PATIENCE:.0f} s") from None
        self._greeted(payload)

    def _greeted(self, payload: bytes) -> None:
        del self._calls[0]
        try:
            self.hello = protocol.GuestHello.model_validate_json(payload)
        except ValidationError as error:
            raise errors.ProtocolError("the guest's first words are not a hello") from error
        if self.hello.protocol != protocol.PROTOCOL:
            raise errors.ProtocolMismatch(
                f"this sandbox has a guest of protocol {self.hello.protocol}, holdfast speaks "
                f"{protocol.PROTOCOL}: close the session and open it again"
            )
        if self.hello.window < 1:
            raise errors.ProtocolError("the guest takes no data")
        if self.window != _REPLAY_WINDOW:
            self._credit = self.hello.window

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
            if self._send_nowait is not None and not self._sending.locked():
                sent = self._send_nowait(data)
                if sent == len(data):
                    return
                data = data[sent:]  # nobody comes between: there is no await before the lock is taken
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
            await self._follow(call)
            return
        self._reading, call.news, leaves = True, False, True
        try:
            self._buffer += await self._stream.receive(_RECEIVE_BYTES)
            self._dispatch()
            leaves = call.news
        except anyio.EndOfStream:
            raise self._fail("the sandbox ended, or the connection to it was closed") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise self._fail("the connection to the sandbox broke") from error
        except (errors.ProtocolError, errors.SessionLost) as error:
            raise self._fail(str(error), error) from None
        finally:
            self._reading = False
            if leaves:  # else it comes back at once, and nobody need wake up
                self._pass_on()

    async def _follow(self, call: Call) -> None:
        try:
            await call.wait()
        except BaseException:
            if not self._reading:  # we may have been woken to read, and cannot
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Have one of those who still wait read. Whoever was woken already looks by itself."""
        for call in self._calls.values():
            if call.waiting:
                call.wake()
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
            if stream == 0 and number == Kind.RESET:
                raise errors.SessionLost("the guest hung up")
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

    async def abandon(self, reason: str) -> None:
        """Give up on a guest that does not answer: what still waits for it is lost."""
        self._fail(reason)
        await anyio.aclose_forcefully(self._stream)

    async def aclose(self) -> None:
        self._fail("the connection was closed", errors.SessionClosed("this session's connection was closed"))
        await anyio.aclose_forcefully(self._stream)


def config_frame(config: protocol.GuestConfig) -> bytes:
    """How a guest that is started with `-` gets its config.

    Raises:
        ArgumentTooLong: it does not fit, because the environment is too large.
    """
    return frame(0, Kind.MESSAGE, _encode(config))


class Call:
    """One stream: a request, its data both ways, its reply. Leaving it early cancels the work in the guest."""

    def __init__(self, connection: Connection, number: int, credit: int = 0) -> None:
        self.id = number
        self._connection = connection
        self._queue: deque[Received] = deque()
        self._events: list[anyio.Event] = []
        self._credit = credit
        self._unread = 0  # credit that the guest used and was not given back yet
        self._replied = False  # the reply is here
        self._answered = False  # and was taken
        self._asked = False  # the guest has heard of it, or may have
        self.news = False  # something arrived since it was last set to False

    async def __aenter__(self) -> Call:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._asked and not self._answered and not self._connection.lost:
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
        return bool(self._events)

    async def wait(self) -> None:
        """Until `wake`. More than one may wait: who feeds a program, and who collects its output."""
        event = anyio.Event()
        self._events.append(event)
        try:
            await event.wait()
        finally:
            if event in self._events:
                self._events.remove(event)

    def wake(self) -> None:
        for event in self._events:
            event.set()
        self._events.clear()

    def take(self, kind: Kind, payload: bytes) -> None:
        """A frame for this call arrived. A guest that floods is cut off: all but one reply takes credit."""
        if kind is Kind.WINDOW:
            self._credit += int.from_bytes(payload, "big")
        else:
            if self._replied or self._unread >= self._connection.window:
                raise errors.ProtocolError("the guest sent more than it was given credit for")
            if kind is Kind.MESSAGE:
                self._replied = True
            else:
                self._unread += max(len(payload), protocol.FRAME_COST)
            self._queue.append((kind, payload))
        self.news = True
        self.wake()

    async def request(self, message: protocol.Frame, data: bytes | None = None) -> None:
        """Send the request, with all of its data if it has some and it is short."""
        parts = [frame(self.id, Kind.MESSAGE, _encode(message))]
        self._asked = True
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
                if self._replied:
                    return False
                await self._connection.pump(self)
            size = min(len(view), self._credit, protocol.MAX_DATA_BYTES)
            self._credit -= size
            await self._connection.send(frame(self.id, Kind.DATA, view[:size]))
            view = view[size:]
        return not self._replied

    async def end_data(self) -> None:
        await self._connection.send(frame(self.id, Kind.END))

    async def receive(self) -> Received:
        """The next frame of this call; the credit that it took goes back to the guest."""
        while not self._queue:
            await self._connection.pump(self)
        kind, payload = self._queue.popleft()
        if kind is Kind.MESSAGE:
            self._answered = True
        elif self._unread >= self._connection.window // 2 and not self._queue:
            granted, self._unread = self._unread, 0
            await self._connection.send(frame(self.id, Kind.WINDOW, granted.to_bytes(4, "big")))
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
    try:
        payload = message.model_dump_json(exclude_none=True).encode()
    except ValueError as error:
        raise errors.InvalidRequest(f"the request holds a text that is none: {error}") from error
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

"""What a host can ask a guest, as async methods: the same on every engine."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeVar

import anyio

from .. import errors
from ..results import ExecResult, FileEntry, Listing, OutputChunk, OutputRead
from . import protocol
from .command import Command
from .connection import Call, Connection, Received, decode
from .kept import Kept, result_of
from .protocol import Kind, from_wire, to_wire

GRACE = 10.0
"""Seconds after an exec's timeout in which the guest must have ended it; a guest that does not is lost."""
_ANSWER_PATIENCE = 60.0
"""Seconds for a request that only looks something up."""
_DOUBT_PATIENCE = 3.0
"""Seconds for a sign of life after a call that was late."""
_DELETE_PATIENCE = 600.0
"""Seconds for a whole tree, which may hold a million files."""
READ_BYTES = 1 << 20
_MAX_KEPT_BYTES = 128 << 20

_T = TypeVar("_T", bound=protocol.Frame)

OnOutput = Callable[[str, bytes], Awaitable[None] | None]
"""Called with "stdout" or "stderr" and bytes, as a program writes them; what it returns is awaited."""
Source = bytes | AsyncIterable[bytes]


class GuestClient:
    """Talks to one guest over one connection. Safe to use from many tasks at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.doubtful = False
        """A call was late: the guest may be busy, or a program has stopped what joins us to it."""

    @property
    def hello(self) -> protocol.GuestHello:
        return self.connection.hello

    async def aclose(self) -> None:
        await self.connection.aclose()

    async def usable(self) -> bool:
        """Whether the connection works. One that does not is given up, with all calls on it."""
        if self.doubtful and not self.connection.lost:
            with anyio.move_on_after(_DOUBT_PATIENCE), contextlib.suppress(errors.SandboxError):
                await self.status()
                self.doubtful = False
            if self.doubtful:
                await self.connection.abandon("the connection to the sandbox stalled, and was given up")
        return not self.connection.lost

    def _within(self, seconds: float | None) -> Deadline:
        return Deadline(seconds, self._doubt)

    def _doubt(self) -> None:
        self.doubtful = True

    async def _soon(self, call: Call) -> Received:
        """The next frame, which does not depend on how long a program runs."""
        with self._within(_ANSWER_PATIENCE):
            return await call.receive()

    # --- exec

    async def exec(
        self, command: Command, stdin: Source | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Run a program to its end. Cancelling the call kills everything that it started."""
        delivery = protocol.Delivery.LIVE if on_output else protocol.Delivery.RESULT
        request = command.request(stdin is not None, delivery)
        with self._within(None if command.timeout is None else command.timeout + GRACE) as deadline:
            async with self.connection.call() as call:
                if isinstance(stdin, bytes) and len(stdin) <= protocol.MAX_DATA_BYTES:
                    await call.request(request, stdin)
                    return await self._collect(call, command, on_output, deadline)
                await call.request(request)
                if stdin is None:
                    return await self._collect(call, command, on_output, deadline)
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(feed, call, stdin)
                        result = await self._collect(call, command, on_output, deadline)
                        tasks.cancel_scope.cancel()
                except ExceptionGroup as group:  # how it was fed is nobody's business: one error, as without stdin
                    raise first(group) from None
                return result

    async def _collect(
        self, call: Call, command: Command, on_output: OnOutput | None, deadline: Deadline
    ) -> ExecResult:
        stdout, stderr = Kept(command.stdout_cap_bytes), Kept(command.stderr_cap_bytes)
        while True:
            kind, payload = await call.receive()
            if kind is Kind.MESSAGE:
                ended = decode(payload)
                if not isinstance(ended, protocol.ExecEnded):
                    raise errors.ProtocolError(f"the guest answered an exec with {ended.type}")
                return result_of(ended, stdout, stderr)
            if kind is Kind.EVENT:
                continue
            (stdout if kind is Kind.DATA else stderr).add(payload, live=on_output is not None)
            if on_output:
                waiting = on_output("stdout" if kind is Kind.DATA else "stderr", payload)
                if waiting is not None:
                    with deadline.paused():
                        await waiting

    async def start(self, command: Command, stdin: bool = False) -> str:
        """Start a program that lives on without this client; the answer is its id."""
        answer = await self._ask(command.request(stdin, protocol.Delivery.DETACHED), protocol.ExecStarted)
        return answer.exec_id

    async def read(self, exec_id: str, since: int, max_bytes: int = READ_BYTES, wait: float = 0) -> OutputRead:
        """What an exec wrote after position `since`; waits up to `wait` seconds for something new."""
        request = protocol.ExecRead(
            exec_id=exec_id, since=since, max_bytes=max_bytes, wait_ms=round(min(wait, 3600) * 1000)
        )
        with self._within(_ANSWER_PATIENCE + wait):
            async with self.connection.call() as call:
                await call.request(request)
                data = bytearray()
                while (received := await call.receive())[0] is Kind.DATA:
                    data += received[1]
                    if len(data) > max_bytes:
                        raise errors.ProtocolError("the guest sent more output than it was asked for")
                answer = _expect(decode(received[1]), protocol.ExecOutput)
        chunks: list[OutputChunk] = []
        at = 0
        for segment in answer.segments:
            piece = bytes(data[at : at + segment.size_bytes])
            chunks.append(OutputChunk(segment.stream.value, segment.position, piece))
            at += segment.size_bytes
        return OutputRead(tuple(chunks), answer.next_position, answer.expired_bytes, answer.ended is not None)

    async def wait(self, exec_id: str, timeout: float | None = None) -> ExecResult | None:
        """The result of a started exec with what is kept of its output; None when it still runs after `timeout`."""
        request = protocol.ExecWait(
            exec_id=exec_id, timeout_ms=None if timeout is None else max(0, round(timeout * 1000))
        )
        patience = None if timeout is None else timeout + _ANSWER_PATIENCE
        ended = (await self._ask(request, protocol.ExecWaited, patience)).ended
        if ended is None:
            return None
        stdout, stderr = (Kept(count.head_bytes + count.tail_bytes) for count in (ended.stdout, ended.stderr))
        if stdout.cap + stderr.cap > _MAX_KEPT_BYTES:
            raise errors.ProtocolError("the guest claims to keep more output than it may")
        since = 0
        while True:
            read = await self.read(exec_id, since)
            for chunk in read.chunks:
                (stdout if chunk.stream == "stdout" else stderr).add(chunk.data, live=False)
            if read.ended:
                return result_of(ended, stdout, stderr)
            if read.next <= since:
                raise errors.ProtocolError("the guest says that there is more output, and sends none")
            since = read.next

    async def kill(self, exec_id: str, signal: int = 9) -> None:
        """SIGKILL ends every process of the exec and returns when they are gone; others are delivered to each."""
        await self._ask(protocol.ExecKill(exec_id=exec_id, signal=signal), protocol.Done)

    async def write_stdin(self, exec_id: str, data: bytes, close: bool = False) -> None:
        async with self.connection.call() as call:
            await call.request(protocol.ExecStdin(exec_id=exec_id, close=close), data)
            _expect(await call.reply(), protocol.Done)

    async def list_execs(self) -> list[protocol.ExecInfo]:
        return (await self._ask(protocol.ExecList(), protocol.ExecListing)).execs

    # --- files

    async def write_file(self, path: str, data: Source, mode: int | None = None, overwrite: bool = True) -> FileEntry:
        """Write a whole file, or nothing: it appears under its name when its last byte is there."""
        request = protocol.FileWrite(path=_path(path), mode=_mode(mode), overwrite=overwrite)
        async with self.connection.call() as call:
            if isinstance(data, bytes) and len(data) <= protocol.MAX_DATA_BYTES:
                await call.request(request, data)
            else:
                await call.request(request)
                await feed(call, data, _ANSWER_PATIENCE, self._doubt)
            with self._within(_ANSWER_PATIENCE):
                return _entry(_expect(await call.reply(), protocol.FileDone).entry)

    async def read_file(self, path: str, offset: int = 0, max_bytes: int | None = None) -> tuple[bytes, bool, int]:
        """Contents, whether there is more after them, and the file's whole size."""
        data = bytearray()
        truncated, size = await self.read_file_into(path, data.extend, offset, max_bytes)
        return bytes(data), truncated, size

    async def read_file_into(
        self, path: str, sink: Callable[[bytes], Awaitable[None] | None], offset: int = 0, max_bytes: int | None = None
    ) -> tuple[bool, int]:
        """As `read_file`, but each piece goes to `sink` as it comes; what that returns is awaited."""
        if offset < 0 or (max_bytes is not None and max_bytes < 0):
            raise errors.InvalidRequest("offset and max_bytes cannot be negative")
        request = protocol.FileRead(path=_path(path), offset=offset, max_bytes=max_bytes)
        async with self.connection.call() as call:
            await call.request(request)
            got = 0
            while (received := await self._soon(call))[0] is Kind.DATA:
                got += len(received[1])
                if max_bytes is not None and got > max_bytes:
                    raise errors.ProtocolError("the guest sent more of a file than it was asked for")
                waiting = sink(received[1])
                if waiting is not None:
                    await waiting
            answer = _expect(decode(received[1]), protocol.FileSent)
        if answer.sent_bytes != got:
            raise errors.ProtocolError(f"the guest sent {got} bytes of a file and says {answer.sent_bytes}")
        return answer.truncated, answer.entry.size_bytes

    async def list_files(self, path: str = ".", recursive: bool = False, max_entries: int = 10_000) -> Listing:
        entries: list[FileEntry] = []
        async with self.connection.call() as call:
            await call.request(protocol.FileList(path=_path(path), recursive=recursive, max_entries=max_entries))
            while (received := await self._soon(call))[0] is Kind.EVENT:
                entries += map(_entry, _expect(decode(received[1]), protocol.FilePage).entries)
                if len(entries) > max_entries:
                    raise errors.ProtocolError("the guest listed more files than it was asked for")
            answer = _expect(decode(received[1]), protocol.FileListed)
        return Listing(tuple(entries), answer.truncated)

    async def stat(self, path: str) -> FileEntry:
        return _entry((await self._ask(protocol.FileStat(path=_path(path)), protocol.FileDone)).entry)

    async def delete(self, path: str, recursive: bool = False) -> None:
        patience = _DELETE_PATIENCE if recursive else _ANSWER_PATIENCE
        await self._ask(protocol.FileDelete(path=_path(path), recursive=recursive), protocol.Done, patience)

    async def mkdir(self, path: str) -> FileEntry:
        return _entry((await self._ask(protocol.FileMkdir(path=_path(path)), protocol.FileDone)).entry)

    async def move(self, source: str, destination: str, overwrite: bool = False) -> FileEntry:
        request = protocol.FileMove(source=_path(source), destination=_path(destination), overwrite=overwrite)
        return _entry((await self._ask(request, protocol.FileDone)).entry)

    # --- the guest

    async def status(self) -> protocol.StatusReport:
        return await self._ask(protocol.Status(), protocol.StatusReport)

    async def shutdown(self) -> None:
        await self._ask(protocol.Shutdown(), protocol.Done)

    async def retire(self, keep: float) -> None:
        """Kill every program, and let the session end after `keep` seconds, used or not."""
        await self._ask(protocol.Retire(keep_ms=round(keep * 1000)), protocol.Done)

    async def _ask(self, request: protocol.Frame, kind: type[_T], patience: float | None = _ANSWER_PATIENCE) -> _T:
        with self._within(patience):
            async with self.connection.call() as call:
                await call.request(request)
                return _expect(await call.reply(), kind)


async def feed(
    call: Call, source: Source, patience: float | None = None, late: Callable[[], None] | None = None
) -> None:
    """Send all of `source` and END; stop early when the guest has answered. It has `patience` for each piece."""
    async for piece in _pieces(source) if isinstance(source, bytes) else source:
        with Deadline(patience, late):
            if not await call.send_data(piece):
                return
    await call.end_data()


async def _pieces(data: bytes) -> AsyncIterator[memoryview]:
    for at in range(0, len(data), protocol.WINDOW_BYTES):
        yield memoryview(data)[at : at + protocol.WINDOW_BYTES]


class Deadline(AbstractContextManager["Deadline"]):
    """An error of ours when time is over: the guest, and not the program, was late. None: never late."""

    def __init__(self, seconds: float | None, late: Callable[[], None] | None = None) -> None:
        self._seconds, self._late = seconds, late

    def __enter__(self) -> Deadline:
        at = math.inf if self._seconds is None else anyio.current_time() + self._seconds
        self._scope = anyio.CancelScope(deadline=at)
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled = self._scope.__exit__(kind, error, trace)
        if self._scope.cancelled_caught:
            if self._late:
                self._late()
            raise errors.SessionLost(f"the sandbox did not answer within {self._seconds:.0f} s") from None
        return handled

    def extend(self, seconds: float) -> None:
        self._scope.deadline += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that the caller takes for itself is not the guest's."""
        left = self._scope.deadline - anyio.current_time()
        self._scope.deadline = math.inf
        try:
            yield
        finally:
            self._scope.deadline = anyio.current_time() + left


def first(group: ExceptionGroup[Exception]) -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


def _expect(answer: protocol.Frame, kind: type[_T]) -> _T:
    if not isinstance(answer, kind):
        raise errors.ProtocolError(f"the guest answered with {type(answer).__name__}, not {kind.__name__}")
    return answer


def _entry(entry: protocol.FileEntry) -> FileEntry:
    return FileEntry(from_wire(entry.path), entry.kind, entry.size_bytes, entry.mode, entry.modified_ms)


def _path(path: str) -> str:
    try:
        return to_wire(path)
    except ValueError as error:
        raise errors.InvalidRequest(f"the path {error}") from error


def _mode(mode: int | None) -> int | None:
    if mode is not None and not 0 <= mode <= 0o7777:
        raise errors.InvalidRequest(f"{mode} is not a file mode; say 0o644, for example")
    return mode

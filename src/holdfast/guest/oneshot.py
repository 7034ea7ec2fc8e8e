"""A run over one connection: files in, the program, artifacts out, in one request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.abc

from .. import errors
from ..results import Artifact, ExecResult, PublishedArtifact, SkippedArtifact
from . import protocol
from .artifacts import Artifacts, Publisher
from .client import GRACE, Deadline, OnOutput, Source, feed, first
from .command import Command
from .connection import Call, Connection, decode
from .kept import Kept, result_of
from .protocol import Kind, from_wire, to_wire
from .replay import ReplayStream

_SLACK_BYTES = 8 << 20
"""of an answer: what is neither output nor artifacts"""
_MAX_RECORDED_STDIN = 256 << 20
_MAX_RECORDED_STAGED = 64 << 20
"""what comes from the store, and what goes there, where all is held in memory"""
_PUBLISHED_BYTES_PER_SECOND = 4e6
"""how slow artifacts may be published"""


class Staged(Protocol):
    """A file that is not here: its size is known, its contents are fetched when they are needed."""

    @property
    def size_bytes(self) -> int: ...

    def open(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run."""

    command: Command
    files: Mapping[str, bytes]
    staged: Mapping[str, Staged] = field(default_factory=dict[str, Staged])
    stdin: Source | None = None
    artifacts: Sequence[str] = ()
    max_artifact_bytes: int = 0
    max_artifacts: int = 0
    publisher: Publisher | None = None
    """where artifacts go that are over `max_artifact_bytes`"""
    on_output: OnOutput | None = None

    def request(self, live: bool, publishable: int = 0) -> protocol.RunRequest:
        sizes = {path: len(content) for path, content in self.files.items()}
        sizes |= {path: found.size_bytes for path, found in self.staged.items()}
        try:
            files = [protocol.RunFile(path=to_wire(path), size_bytes=size) for path, size in sizes.items()]
            patterns = [to_wire(pattern) for pattern in self.artifacts]
        except ValueError as error:
            raise errors.InvalidRequest(f"a path or a pattern {error}") from error
        delivery = protocol.Delivery.LIVE if live else protocol.Delivery.RESULT
        return protocol.RunRequest(
            files=files,
            program=self.command.request(self.stdin is not None, delivery),
            artifacts=patterns,
            max_artifact_bytes=self.max_artifact_bytes + publishable,
            max_artifacts=self.max_artifacts,
        )

    @property
    def max_answer_bytes(self) -> int:
        caps = self.command.stdout_cap_bytes + self.command.stderr_cap_bytes
        return caps + self.max_artifact_bytes + _SLACK_BYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended, and what it left."""

    result: ExecResult
    artifacts: tuple[Artifact, ...]
    skipped: tuple[SkippedArtifact, ...]
    skipped_count: int
    published: tuple[PublishedArtifact, ...]
    unpublished: str
    """why not all that were too large were published"""
    unlisted: bool
    """not all files were looked at"""
    proof: str | None


class OneShot:
    """One run on a fresh guest at the other end of `stream`: `send`, then `receive`."""

    def __init__(self, stream: anyio.abc.ByteStream, order: Order) -> None:
        self._stream, self._order = stream, order
        self._replay = stream if isinstance(stream, ReplayStream) else None
        self._live = order.on_output is not None and self._replay is None
        self._publishable = order.publisher.max_bytes if order.publisher else 0
        if self._replay is not None:
            self._publishable = min(self._publishable, _MAX_RECORDED_STAGED)
        self._connection: Connection
        self._call: Call

    async def send(self) -> None:
        """Say hello, the request and all of the files. Does not wait for the guest: it has all that it needs."""
        self._connection = await Connection.start(self._stream, replay=self._replay is not None)
        self._call = self._connection.call()
        await self._call.request(self._order.request(self._live, self._publishable))
        for content in self._order.files.values():
            await self._call.send_data(content)
        await self._send_staged()
        if self._replay is not None:
            self._replay.max_answer_bytes = self._order.max_answer_bytes + self._publishable
            if self._order.stdin is not None:
                await self._call.send_data(await _all(self._order.stdin))
        if self._replay is not None or self._order.stdin is None:
            await self._call.end_data()

    async def _send_staged(self) -> None:
        staged = self._order.staged.values()
        if self._replay is not None and sum(file.size_bytes for file in staged) > _MAX_RECORDED_STAGED:
            raise errors.FileTooLarge(
                f"staged files of more than {_MAX_RECORDED_STAGED >> 20} MB together cannot go into a run on this "
                "engine, which has to hold them"
            )
        for file in staged:
            async with file.open() as pieces:
                # The last piece goes when all of the file is known to be right: until then nothing runs.
                last = b""
                async for piece in pieces:
                    if last and not await self._call.send_data(last):
                        return
                    last = piece
                await self._call.send_data(last)

    async def receive(self) -> Outcome:
        """The end of the run. Cancelling it kills everything that the program started."""
        timeout, stdin = self._order.command.timeout, self._order.stdin
        if self._replay is not None:  # its engine has the clock
            timeout = stdin = None
        with Deadline(None if timeout is None else timeout + GRACE) as deadline:
            async with self._call:
                await self._connection.greeted()
                if stdin is None:
                    return await self._collect(deadline)
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(feed, self._call, stdin)
                        outcome = await self._collect(deadline)
                        tasks.cancel_scope.cancel()
                except ExceptionGroup as group:
                    raise first(group) from None
                return outcome

    async def _collect(self, deadline: Deadline) -> Outcome:
        command = self._order.command
        stdout, stderr = Kept(command.stdout_cap_bytes), Kept(command.stderr_cap_bytes)
        order = self._order
        artifacts = Artifacts(order.max_artifact_bytes, order.max_artifacts, self._publishable, order.publisher)
        while True:
            kind, payload = await self._call.receive()
            if kind is Kind.MESSAGE:
                return await self._outcome(payload, stdout, stderr, artifacts)
            if kind is Kind.EVENT:
                event = decode(payload)
                if isinstance(event, protocol.ArtifactFound):
                    with deadline.paused():
                        publishing = await artifacts.found(event)
                    if publishing:
                        deadline.extend(event.size_bytes / _PUBLISHED_BYTES_PER_SECOND)
                continue
            if kind is Kind.DATA and artifacts.any:
                with deadline.paused():
                    await artifacts.add(payload)
                continue
            (stdout if kind is Kind.DATA else stderr).add(payload, live=self._live)
            if self._order.on_output:
                waiting = self._order.on_output("stdout" if kind is Kind.DATA else "stderr", payload)
                if waiting is not None:
                    with deadline.paused():
                        await waiting

    async def _outcome(self, payload: bytes, stdout: Kept, stderr: Kept, artifacts: Artifacts) -> Outcome:
        answer = decode(payload)
        if not isinstance(answer, protocol.RunEnded):
            raise errors.ProtocolError(f"the guest answered a run with {answer.type}")
        inline = await artifacts.all()
        skipped = tuple(SkippedArtifact(from_wire(one.path), one.size_bytes) for one in answer.skipped)
        return Outcome(
            result_of(answer.ended, stdout, stderr),
            inline,
            (*skipped, *artifacts.skipped),
            max(answer.skipped_count, len(skipped)) + len(artifacts.skipped),
            tuple(artifacts.published),
            artifacts.unpublished,
            answer.unlisted,
            answer.proof,
        )


async def _all(source: Source) -> bytes:
    """All of a source: an engine that starts the guest later must have it first."""
    if isinstance(source, bytes):
        return source
    out = bytearray()
    pieces: AsyncIterator[bytes] = aiter(source)
    async for piece in pieces:
        out += piece
        if len(out) > _MAX_RECORDED_STDIN:
            raise errors.InvalidRequest(
                f"stdin is longer than {_MAX_RECORDED_STDIN >> 20} MB, which this engine has to hold: give it as a file"
            )
    return bytes(out)

"""A run over one connection: files in, the program, artifacts out, in one request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import anyio
import anyio.abc

from .. import errors
from ..results import Artifact, ExecResult, SkippedArtifact
from . import protocol
from .client import GRACE, Deadline, OnOutput, Source, feed, first
from .command import Command
from .connection import Call, Connection, decode
from .kept import Kept, result_of
from .protocol import Kind, from_wire, to_wire
from .replay import ReplayStream

_SLACK_BYTES = 8 << 20
"""of an answer: what is neither output nor artifacts"""
_MAX_RECORDED_STDIN = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run."""

    command: Command
    files: Mapping[str, bytes]
    stdin: Source | None = None
    artifacts: Sequence[str] = ()
    max_artifact_bytes: int = 0
    max_artifacts: int = 0
    on_output: OnOutput | None = None

    def request(self, live: bool) -> protocol.RunRequest:
        try:
            files = [
                protocol.RunFile(path=to_wire(path), size_bytes=len(content)) for path, content in self.files.items()
            ]
            patterns = [to_wire(pattern) for pattern in self.artifacts]
        except ValueError as error:
            raise errors.InvalidRequest(f"a path or a pattern {error}") from error
        delivery = protocol.Delivery.LIVE if live else protocol.Delivery.RESULT
        return protocol.RunRequest(
            files=files,
            program=self.command.request(self.stdin is not None, delivery),
            artifacts=patterns,
            max_artifact_bytes=self.max_artifact_bytes,
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
    unlisted: bool
    """not all files were looked at"""
    proof: str | None


class OneShot:
    """One run on a fresh guest at the other end of `stream`: `send`, then `receive`."""

    def __init__(self, stream: anyio.abc.ByteStream, order: Order) -> None:
        self._stream, self._order = stream, order
        self._replay = stream if isinstance(stream, ReplayStream) else None
        self._live = order.on_output is not None and self._replay is None
        self._connection: Connection
        self._call: Call

    async def send(self) -> None:
        """Say hello, the request and all of the files. Does not wait for the guest: it has all that it needs."""
        self._connection = await Connection.start(self._stream, replay=self._replay is not None)
        self._call = self._connection.call()
        await self._call.request(self._order.request(self._live))
        for content in self._order.files.values():
            await self._call.send_data(content)
        if self._replay is not None:
            self._replay.max_answer_bytes = self._order.max_answer_bytes
            if self._order.stdin is not None:
                await self._call.send_data(await _all(self._order.stdin))
        if self._replay is not None or self._order.stdin is None:
            await self._call.end_data()

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
        artifacts = _Artifacts(self._order.max_artifact_bytes, self._order.max_artifacts)
        while True:
            kind, payload = await self._call.receive()
            if kind is Kind.MESSAGE:
                return self._outcome(payload, stdout, stderr, artifacts)
            if kind is Kind.EVENT:
                event = decode(payload)
                if isinstance(event, protocol.ArtifactFound):
                    artifacts.found(event)
                continue
            if kind is Kind.DATA and artifacts.any:
                artifacts.add(payload)
                continue
            (stdout if kind is Kind.DATA else stderr).add(payload, live=self._live)
            if self._order.on_output:
                waiting = self._order.on_output("stdout" if kind is Kind.DATA else "stderr", payload)
                if waiting is not None:
                    with deadline.paused():
                        await waiting

    def _outcome(self, payload: bytes, stdout: Kept, stderr: Kept, artifacts: _Artifacts) -> Outcome:
        answer = decode(payload)
        if not isinstance(answer, protocol.RunEnded):
            raise errors.ProtocolError(f"the guest answered a run with {answer.type}")
        skipped = tuple(SkippedArtifact(from_wire(one.path), one.size_bytes) for one in answer.skipped)
        return Outcome(
            result_of(answer.ended, stdout, stderr),
            artifacts.all(),
            skipped,
            max(answer.skipped_count, len(skipped)),
            answer.unlisted,
            answer.proof,
        )


class _Artifacts:
    """The files as they come: announced, then filled. A guest that breaks its word, or the caps, is not believed."""

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self._room, self._count = max_bytes, max_count
        self._all: list[Artifact] = []
        self._open: protocol.ArtifactFound | None = None
        self._data = bytearray()

    @property
    def any(self) -> bool:
        return self._open is not None

    def found(self, event: protocol.ArtifactFound) -> None:
        self._finish()
        self._room -= event.size_bytes
        if event.size_bytes < 0 or self._room < 0 or len(self._all) >= self._count:
            raise errors.ProtocolError("the guest sent more artifacts than it was asked for")
        self._open = event

    def add(self, data: bytes) -> None:
        self._data += data
        if self._open is None or len(self._data) > self._open.size_bytes:
            raise errors.ProtocolError("the guest sent more of an artifact than it said")

    def _finish(self) -> None:
        if self._open is None:
            return
        if len(self._data) != self._open.size_bytes:
            raise errors.ProtocolError("the guest sent less of an artifact than it said")
        self._all.append(Artifact(from_wire(self._open.path), len(self._data), bytes(self._data)))
        self._data.clear()

    def all(self) -> tuple[Artifact, ...]:
        self._finish()
        return tuple(self._all)


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

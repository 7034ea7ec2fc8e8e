"""The artifacts of a run as the guest sends them: announced, then filled. What is too large to be returned may be
published. A guest that breaks its word, or the caps, is not believed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .. import errors
from ..results import Artifact, PublishedArtifact, SkippedArtifact
from . import protocol
from .protocol import from_wire


class Publisher(AbstractAsyncContextManager["Publisher"], Protocol):
    """Takes one artifact after the other to where it can be found later."""

    max_bytes: int

    async def begin(self, path: str) -> None: ...
    async def add(self, data: bytes) -> None: ...
    async def end(self) -> PublishedArtifact: ...
    async def give_up(self) -> None: ...


class Artifacts:
    """What came so far."""

    def __init__(self, max_bytes: int, max_count: int, publishable: int, publisher: Publisher | None) -> None:
        self._inline, self._count = max_bytes, max_count
        self._room = max_bytes + publishable
        self._publisher = publisher
        self._open: protocol.ArtifactFound | None = None
        self._got = 0
        self._data = bytearray()
        self._publishing = self._failed = False
        self._all: list[Artifact] = []
        self.published: list[PublishedArtifact] = []
        self.skipped: list[SkippedArtifact] = []
        """what should have been published"""
        self.unpublished = ""
        """why it was not, the first time"""

    @property
    def any(self) -> bool:
        return self._open is not None

    async def found(self, event: protocol.ArtifactFound) -> bool:
        """The next one. True: it goes to the publisher."""
        await self._finish()
        self._room -= event.size_bytes
        if event.size_bytes < 0 or self._room < 0 or self._count <= 0:
            raise errors.ProtocolError("the guest sent more artifacts than it was asked for")
        self._count -= 1
        self._open, self._got = event, 0
        self._publishing, self._failed = event.size_bytes > self._inline, False
        if not self._publishing:
            self._inline -= event.size_bytes
            return False
        assert self._publisher is not None  # else there were no room
        try:
            await self._publisher.begin(from_wire(event.path))
        except errors.SandboxError as error:
            await self._fail(error)
        return True

    async def add(self, data: bytes) -> None:
        self._got += len(data)
        if self._open is None or self._got > self._open.size_bytes:
            raise errors.ProtocolError("the guest sent more of an artifact than it said")
        if not self._publishing:
            self._data += data
        elif self._publisher is not None and not self._failed:
            try:
                await self._publisher.add(data)
            except errors.SandboxError as error:
                await self._fail(error)

    async def _fail(self, error: errors.SandboxError) -> None:
        """The run has a result all the same."""
        assert self._publisher is not None and self._open is not None
        self._failed = True
        self.unpublished = self.unpublished or str(error)
        self.skipped.append(SkippedArtifact(from_wire(self._open.path), self._open.size_bytes))
        await self._publisher.give_up()

    async def _finish(self) -> None:
        if self._open is None:
            return
        if self._got != self._open.size_bytes:
            raise errors.ProtocolError("the guest sent less of an artifact than it said")
        if not self._publishing:
            self._all.append(Artifact(from_wire(self._open.path), len(self._data), bytes(self._data)))
            self._data.clear()
        elif self._publisher is not None and not self._failed:
            try:
                self.published.append(await self._publisher.end())
            except errors.SandboxError as error:
                await self._fail(error)
        self._open = None

    async def all(self) -> tuple[Artifact, ...]:
        await self._finish()
        return tuple(self._all)

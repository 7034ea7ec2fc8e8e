"""A file on its way out of the store: its pieces in order, and at their end the proof that they were all of it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from .. import errors
from ..asked import short
from .consumer import Messages, messages
from .link import Link
from .objects import StagedFile, digest_bytes

_AHEAD = 16
"""pieces that may be on their way to us, of 128 KiB as a rule"""
_DOUBT_SECONDS = 2.0
"""without a piece for so long, it may have been replaced, and its pieces removed"""


class Reading:
    """The pieces of a file. Iteration ends only if they were what the store's record says; otherwise it raises."""

    def __init__(self, file: StagedFile, found: Messages, changed: Callable[[], Awaitable[bool]]) -> None:
        self._file, self._messages, self._changed = file, found, changed
        self._expected = digest_bytes(file)
        self._digest = hashlib.sha256()
        self._size = self._pieces = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next piece.

        Raises:
            StagedFileDamaged: pieces are missing, or size or digest are not as recorded.
            StagedFileChanged: it was replaced or deleted meanwhile.
            StagingLost: the store went away, or did not send it in time.
        """
        if self._pieces == 0 and self._messages.total != self._file.pieces:
            raise await self._damaged(f"{self._messages.total} of {self._file.pieces} pieces are there")
        if self._messages.done:
            await self._finish()
            raise StopAsyncIteration
        piece = await self._next()
        self._pieces += 1
        self._size += len(piece)
        if self._size > self._file.size_bytes:
            raise await self._damaged(f"it is larger than the {self._file.size_bytes} bytes that are recorded")
        self._digest.update(piece)
        return piece

    async def _next(self) -> bytes:
        with anyio.move_on_after(_DOUBT_SECONDS):
            return bytes((await self._messages.next()).data)
        if await self._changed_meanwhile():
            raise self._replaced()
        return bytes((await self._messages.next()).data)

    async def _finish(self) -> None:
        if self._pieces != self._file.pieces:
            raise await self._damaged(f"only {self._pieces} of {self._file.pieces} pieces came")
        if self._size != self._file.size_bytes:
            raise await self._damaged(f"it has {self._size} bytes, and {self._file.size_bytes} are recorded")
        if self._digest.digest() != self._expected:
            raise await self._damaged("its contents do not have the digest that is recorded")

    async def _damaged(self, why: str) -> errors.StagingError:
        if await self._changed_meanwhile():
            return self._replaced()
        return errors.StagedFileDamaged(f"the staged file {short(self._file.name)} is damaged: {why}")

    async def _changed_meanwhile(self) -> bool:
        try:
            return await self._changed()
        except errors.StagingError:
            return False

    def _replaced(self) -> errors.StagedFileChanged:
        return errors.StagedFileChanged(
            f"the staged file {short(self._file.name)} was replaced or deleted while it was read; try again"
        )


@asynccontextmanager
async def reading(link: Link, file: StagedFile, changed: Callable[[], Awaitable[bool]]) -> AsyncIterator[Reading]:
    """The contents of a file; `changed` looks whether its record is another one now."""
    async with messages(link, file.bucket, file.pieces_subject, ahead=_AHEAD) as found:
        yield Reading(file, found, changed)

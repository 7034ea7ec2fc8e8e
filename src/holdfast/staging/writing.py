"""A file on its way into the store: pieces first, and when all are there its record, which makes it appear.

A file that is not committed leaves nothing: its pieces are removed, also after a cancel, and also when the connection
broke and another one can be made. What a killed client leaves goes with the time to live of the bucket.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from .. import errors
from .answers import failure
from .link import Mailbox
from .objects import PIECE_BYTES, StagedFile, digest_text, new_nuid

if TYPE_CHECKING:
    from .reach import Place
    from .store import Before, Store

_WINDOW = 32
"""pieces that the store has not confirmed yet"""
_CLEANING_SECONDS = 10.0
_SETTLING_SECONDS = 3.0


class Writing:
    """A file that does not exist yet. Get it from `Store.writing`; `add` its contents, then `commit`."""

    def __init__(self, store: Store, place: Place, before: Before, box: Mailbox) -> None:
        self._store, self._place, self._before, self._box = store, place, before, box
        self._piece_bytes = min(PIECE_BYTES, store.link.max_payload)
        self._nuid = new_nuid()
        self._digest = hashlib.sha256()
        self._rest = bytearray()
        self._size = self._sent = self._confirmed = 0
        self._committing = False

    async def add(self, data: bytes | memoryview) -> None:
        """More of its contents.

        Raises:
            FileTooLarge: it would have more than `staging_max_bytes`.
            StagingFull, StagingDenied, StagingLost: the store did not take it.
        """
        most = self._store.settings.staging_max_bytes
        self._size += len(data)
        if self._size > most:
            raise errors.FileTooLarge(
                f"the file has more than {most} bytes (the operator sets HOLDFAST_STAGING_MAX_BYTES)"
            )
        self._digest.update(data)
        self._rest += data
        while len(self._rest) >= self._piece_bytes:
            piece = bytes(self._rest[: self._piece_bytes])
            del self._rest[: self._piece_bytes]
            await self._send(piece)

    async def commit(self) -> StagedFile:
        """Make it appear, in place of what has had this key. From here on a cancel comes too late.

        Raises:
            StagingFull, StagingDenied, StagingLost: the store did not take it.
        """
        if self._rest:
            await self._send(bytes(self._rest))
        while self._confirmed < self._sent:
            await self._confirm()
        file = StagedFile(
            bucket=self._place.bucket,
            name=self._place.key,
            nuid=self._nuid,
            size_bytes=self._size,
            pieces=self._sent,
            digest=digest_text(self._digest.digest()),
            modified=time.time(),
        )
        self._committing = True
        with anyio.CancelScope(shield=True):  # each step has the deadline of the store
            await self._store.record(file, self._before)
        self._nuid = ""
        return file

    async def _send(self, piece: bytes) -> None:
        while self._sent - self._confirmed >= _WINDOW or len(self._box):
            await self._confirm()
        await self._store.link.publish(f"$O.{self._place.bucket}.C.{self._nuid}", piece, self._box)
        self._sent += 1

    async def _confirm(self) -> None:
        answer = await self._box.answer()
        if "error" in answer:
            raise failure(answer, self._store.link.address)
        self._confirmed += 1

    async def discard(self) -> None:
        """Remove what was sent of a file that was not committed."""
        if not self._nuid:
            return
        with anyio.move_on_after(_CLEANING_SECONDS, shield=True), contextlib.suppress(errors.SandboxError):
            async with AsyncExitStack() as stack:
                store = self._store
                if store.link.lost:
                    store = await stack.enter_async_context(store.again())
                else:
                    await self._settle()
                # The answer to the record may be what was lost: then the file is there, whole.
                if not self._committing or not await store.holds(self._place, self._nuid):
                    await store.purge(self._place.bucket, self._nuid)

    async def _settle(self) -> None:
        """What is on its way must arrive before it can be removed."""
        with anyio.move_on_after(_SETTLING_SECONDS), contextlib.suppress(errors.StagingError):
            while self._confirmed < self._sent:
                await self._box.receive()
                self._confirmed += 1


@asynccontextmanager
async def writing(store: Store, place: Place, before: Before) -> AsyncIterator[Writing]:
    """A file to be written in the place of what was there before."""
    async with store.link.mailbox() as box:
        made = Writing(store, place, before, box)
        try:
            yield made
        finally:
            await made.discard()

"""The files of a NATS Object Store: look up, list, read, write, delete.

nats-py has calls for these, and they are not used: they wait for ever for a piece that is missing, check a digest when
all is written, follow links into other buckets, and leave pieces behind when they are cancelled.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import anyio

from .. import errors
from ..asked import short
from ..config import Settings
from . import consumer
from .answers import already_there, failure, no_bucket, no_message, overtaken
from .link import Link, connect
from .objects import StagedFile, meta_subject, name_of, parse, stream
from .reach import Place
from .reading import Reading, reading
from .writing import Writing, writing

MAX_LISTED = 10_000
_AHEAD = 256
_ATTEMPTS = 20
_PURGING_SECONDS = 10.0


class Before(NamedTuple):
    """What had a key until now."""

    sequence: int
    """of its record; 0: there was nothing"""
    nuid: str
    """of its pieces; empty: it has none"""


class StagedFiles(NamedTuple):
    """What a bucket holds."""

    files: tuple[StagedFile, ...]
    truncated: bool
    """there are more"""
    unreadable: int
    """records that say nothing that could be understood"""


class _Record(NamedTuple):
    meta: bytes
    sequence: int
    modified: float


class Store:
    """The object store, over one connection. Get it from `open_store`."""

    def __init__(self, link: Link, settings: Settings) -> None:
        self.link, self.settings = link, settings

    def again(self) -> AbstractAsyncContextManager[Store]:
        """The same over a new connection."""
        return open_store(self.settings)

    # --- look

    async def info(self, place: Place) -> StagedFile:
        """The file that lies there.

        Raises:
            StagedFileNotFound: there is none, or it was deleted.
            StagedFileDamaged: its record cannot be read.
        """
        found = await self._last(place)
        if found is not None:
            file = parse(place.bucket, found.meta, name=place.key, sequence=found.sequence, modified=found.modified)
            if not file.deleted:
                return file
        where = "" if place.bucket == self.settings.staging_bucket else f" in the bucket {place.bucket}"
        raise errors.StagedFileNotFound(f"there is no staged file {short(place.key)}{where}")

    async def list(self, bucket: str, prefix: str = "", most: int = MAX_LISTED) -> StagedFiles:
        """The files whose keys begin with `prefix`, in the order of their keys."""
        files: list[StagedFile] = []
        unreadable = 0
        async with consumer.messages(self.link, bucket, f"$O.{bucket}.M.>", last=True, ahead=_AHEAD) as found:
            while not found.done and len(files) <= most:
                message = await found.next()
                name = name_of(bucket, message.subject)
                if name is None:
                    unreadable += 1
                    continue
                if not name.startswith(prefix):
                    continue
                sequence, modified = consumer.sequence(message), consumer.time(message)
                try:
                    file = parse(bucket, bytes(message.data), name=name, sequence=sequence, modified=modified)
                except errors.StagedFileDamaged:
                    unreadable += 1
                    continue
                if not file.deleted:
                    files.append(file)
        files.sort(key=lambda file: file.name)
        return StagedFiles(tuple(files[:most]), len(files) > most, unreadable)

    async def _last(self, place: Place) -> _Record | None:
        return self._record_in(await self._ask_for(place), place)

    async def _ask_for(self, place: Place) -> dict[str, Any]:
        subject = meta_subject(place.bucket, place.key)
        return await self.link.ask(f"$JS.API.STREAM.MSG.GET.{stream(place.bucket)}", {"last_by_subj": subject})

    def _record_in(self, answer: Mapping[str, Any], place: Place) -> _Record | None:
        if no_bucket(answer) or no_message(answer):
            return None
        if "error" in answer:
            raise failure(answer, self.link.address)
        try:
            found = answer["message"]
            if found["subject"] != meta_subject(place.bucket, place.key):
                raise ValueError
            modified = datetime.fromisoformat(found["time"]).timestamp()
            return _Record(base64.b64decode(found.get("data", "")), int(found["seq"]), modified)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise errors.StagingLost(f"the object store at {self.link.address} sent an answer that is none") from None

    # --- read

    @asynccontextmanager
    async def reading(self, file: StagedFile) -> AsyncIterator[Reading]:
        """The contents of a file, piece by piece.

        Raises:
            StagedFileIsLink: it only points to another one.
            StagedFileDamaged: there is no digest to check it by.
        """
        if file.link:
            raise errors.StagedFileIsLink(
                f"the staged file {short(file.name)} is a link to another one, and links are not followed; "
                "name the file itself"
            )

        async def changed() -> bool:
            now = await self._last(Place(file.bucket, file.name))
            return now is None or now.sequence != file.sequence

        async with reading(self.link, file, changed) as pieces:
            yield pieces

    # --- write

    @asynccontextmanager
    async def writing(self, place: Place) -> AsyncIterator[Writing]:
        """A new file there, which replaces an old one when it is complete."""
        async with writing(self, place, await self._before(place, make=True)) as made:
            yield made

    async def delete(self, place: Place) -> StagedFile:
        """Remove a file; the answer is what it was.

        Raises:
            StagedFileNotFound: there is none.
        """
        file = await self.info(place)
        gone = replace(file, deleted=True, link=False, size_bytes=0, pieces=0, digest="")
        with anyio.CancelScope(shield=True):
            await self.record(gone, Before(file.sequence, file.nuid))
        return file

    async def record(self, file: StagedFile, before: Before) -> None:
        """Make a file's record the one that counts, and remove the pieces of what it replaces: exactly those, since
        nobody else has replaced it in between."""
        place = Place(file.bucket, file.name)
        for _ in range(_ATTEMPTS):
            headers = {"Nats-Rollup": "sub", "Nats-Expected-Last-Subject-Sequence": str(before.sequence)}
            answer = await self.link.ask(file.meta_subject, file.as_meta(), headers)
            if not overtaken(answer):
                break
            before = await self._before(place)
        if "error" in answer:
            raise failure(answer, self.link.address)
        if before.nuid:
            # The file is there. What remains of the old one would be in nobody's way.
            with anyio.move_on_after(_PURGING_SECONDS), suppress(errors.StagingError):
                await self.purge(file.bucket, before.nuid)

    async def holds(self, place: Place, nuid: str) -> bool:
        """Whether the file there has these pieces."""
        return (await self._before(place)).nuid == nuid

    async def purge(self, bucket: str, nuid: str) -> None:
        """Remove pieces."""
        answer = await self.link.ask(f"$JS.API.STREAM.PURGE.{stream(bucket)}", {"filter": f"$O.{bucket}.C.{nuid}"})
        if "error" in answer and not no_bucket(answer):
            raise failure(answer, self.link.address)

    async def _before(self, place: Place, *, make: bool = False) -> Before:
        answer = await self._ask_for(place)
        if make and no_bucket(answer):
            await self._make(place.bucket)
        found = self._record_in(answer, place)
        if found is None:
            return Before(0, "")
        try:
            file = parse(place.bucket, found.meta, name=place.key, sequence=found.sequence, modified=found.modified)
        except errors.StagedFileDamaged:  # it may be replaced, but nobody knows what was its own
            return Before(found.sequence, "")
        return Before(found.sequence, "" if file.deleted else file.nuid)

    async def _make(self, bucket: str) -> None:
        if bucket != self.settings.staging_bucket:
            raise errors.StagingUnavailable(f"there is no bucket {bucket} in the object store at {self.link.address}")
        ttl = self.settings.staging_ttl
        config = {
            "name": stream(bucket),
            "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": 1,
            "max_age": round(ttl * 1e9) if ttl else 0,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        answer = await self.link.ask(f"$JS.API.STREAM.CREATE.{stream(bucket)}", config)
        if "error" in answer and not already_there(answer):
            raise failure(answer, self.link.address)


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Store]:
    """The object store that the operator has configured.

    Raises:
        StagingUnavailable: none is configured or answers.
        StagingDenied: our login is refused.
    """
    async with connect(settings) as link:
        yield Store(link, settings)

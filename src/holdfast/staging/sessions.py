"""Files from the store into a session's workspace, and back: streamed, and whole or not at all on both sides."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import errors
from ..asked import short
from ..results import FileEntry, FileKind
from .objects import StagedFile
from .reach import Place, Reach
from .reading import Reading
from .store import Store

if TYPE_CHECKING:
    from ..code.session import Session

OnBytes = Callable[[int, int | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A file that is in the store and in a workspace."""

    file_key: str
    """what to call it by from where it was staged or published"""
    bucket: str
    path: str
    """in the workspace"""
    size_bytes: int
    digest: str
    """SHA-256=…, base64url, as other clients of the store write it"""

    def as_tool(self) -> dict[str, Any]:
        return {
            "file_key": errors.printable(self.file_key),
            "bucket": self.bucket,
            "path": self.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            "size_bytes": self.size_bytes,
            "digest": self.digest,
        }


async def stage(
    session: Session,
    store: Store,
    reach: Reach,
    key: str,
    path: str,
    *,
    bucket: str | None = None,
    overwrite: bool = True,
    tell: OnBytes | None = None,
) -> Staged:
    """Bring a file of the store into the workspace. It appears when all of it is there and has the right digest.

    Raises:
        PolicyError: the key is not one that may be read from here.
        StagedFileNotFound, StagedFileIsLink, StagedFileDamaged, StagedFileChanged: see there.
        FileTooLarge, WorkspaceFull: it does not fit, by the size in its record; nothing was read.
    """
    with session.span("stage_file") as span:
        place = reach.readable(key, bucket)
        file = await store.info(place)
        if path.endswith("/"):
            path += posixpath.basename(file.name)
        guest = await session.guest()
        _fits(file.size_bytes, store.settings.staging_max_bytes, session.effective.limits.get("max_file_size_bytes"))
        report = await guest.status()
        left = report.workspace_free_bytes
        if report.workspace_total_bytes and file.size_bytes > left:
            raise errors.WorkspaceFull(f"{short(file.name)} has {file.size_bytes} bytes; the workspace has {left} left")
        async with store.reading(file) as pieces, aclosing(_told(pieces, file, tell)) as source:
            entry = await guest.write_file(path, source, overwrite=overwrite)
        if entry.size_bytes != file.size_bytes:
            raise errors.ProtocolError(f"the guest wrote {entry.size_bytes} bytes of {file.size_bytes}")
        span.set(bytes=file.size_bytes)
        return _staged(file, place, reach, entry)


async def publish(
    session: Session,
    store: Store,
    reach: Reach,
    path: str,
    key: str | None = None,
    *,
    bucket: str | None = None,
    tell: OnBytes | None = None,
) -> Staged:
    """Put a file of the workspace into the store; without a key, under its path. It replaces a file with this key.

    Raises:
        PolicyError: the key is not one that may be written from here.
        NotRegularFile, SandboxIsADirectory, FileTooLarge: it cannot be published.
    """
    with session.span("publish_file") as span:
        guest = await session.guest()
        entry = await guest.stat(path)
        if entry.kind is FileKind.DIRECTORY:
            raise errors.SandboxIsADirectory(
                f"{errors.printable(path)} is a folder; publish its files, or an archive of it"
            )
        place = reach.writable(entry.path if key is None else key, bucket)
        _fits(entry.size_bytes, store.settings.staging_max_bytes, None)
        async with store.writing(place) as writing:
            done = 0

            async def take(data: bytes) -> None:
                nonlocal done
                await writing.add(data)
                done += len(data)
                if tell:
                    tell(done, max(done, entry.size_bytes))

            await guest.read_file_into(path, take)
            file = await writing.commit()
        span.set(bytes=file.size_bytes)
        return _staged(file, place, reach, entry)


def _fits(size: int, most: int, session_most: int | None) -> None:
    if size > most:
        raise errors.FileTooLarge(
            f"the file has {size} bytes; a staged file may have {most} (the operator sets HOLDFAST_STAGING_MAX_BYTES)"
        )
    if session_most is not None and size > session_most:
        raise errors.FileTooLarge(f"the file has {size} bytes, and a file of this session may have {session_most}")


async def _told(pieces: Reading, file: StagedFile, tell: OnBytes | None) -> AsyncGenerator[bytes]:
    done = 0
    async for piece in pieces:
        yield piece
        done += len(piece)
        if tell:
            tell(done, file.size_bytes)


def _staged(file: StagedFile, place: Place, reach: Reach, entry: FileEntry) -> Staged:
    return Staged(
        file_key=reach.shown(place),
        bucket=file.bucket,
        path=entry.path,
        size_bytes=file.size_bytes,
        digest=file.digest,
    )

"""`holdfast cp`: files into a session and out of it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import errors
from ._common import Command, Key, execute, say, takes_key
from ._live import Sink, source
from ._options import place

if TYPE_CHECKING:
    from ..aio import Session

_READ_BYTES = 1 << 20
_MAX_ENTRIES = 100_000


@click.command(
    "cp",
    cls=Command,
    examples="""
        holdfast cp --workflow demo data.csv :in/data.csv
        holdfast cp --workflow demo :in/data.csv copy.csv
        echo hello | holdfast cp --workflow demo - :greeting.txt
        holdfast cp --workflow demo :greeting.txt -
        holdfast cp --workflow demo :in in-copy
    """,
)
@takes_key
@click.argument("src")
@click.argument("dst")
def command(key: Key, src: str, dst: str) -> int:
    """Copy SRC to DST; a path of the session is written :PATH.

    `-` is stdin or stdout. Folders are copied with all that is in them. Files appear when they are complete.
    """
    key.require()
    if src.startswith(":") == dst.startswith(":"):
        raise click.UsageError("one of SRC and DST is a path of the session, written :PATH; the other is not")

    async def work() -> int:
        async with key.find() as session:
            try:
                if dst.startswith(":"):
                    await _upload(session, src, dst[1:])
                else:
                    await _download(session, src[1:] or ".", dst)
            except BrokenPipeError:
                raise
            except OSError as error:
                if isinstance(error, errors.SandboxError):
                    raise
                raise errors.InvalidRequest(f"{error.filename}: {error.strerror}") from error
        return 0

    return execute(work)


async def _kind(session: Session, path: str) -> str | None:
    try:
        return (await session.stat(path)).kind.value
    except errors.SandboxFileNotFound:
        return None


async def _into(session: Session, path: str, name: str) -> str:
    """A folder as target means: under its old name in there."""
    path = path or "."
    if path.endswith("/") or await _kind(session, path) == "directory":
        return posixpath.normpath(posixpath.join(path, name))
    return path


async def _upload(session: Session, src: str, path: str) -> None:
    if src == "-":
        if not path or path.endswith("/"):
            raise click.UsageError("stdin has no name: say :PATH of a file")
        await (await session.guest()).write_file(path, source() or _nothing())
        return
    target = await _into(session, path, _name(src))
    for file, inside, mode in _plan(Path(src), target):
        if mode is None:
            await session.mkdir(inside)
        else:
            await session.upload(file, inside, mode=mode)


def _name(src: str) -> str:
    return Path(os.path.abspath(src)).name  # noqa: PTH100  `.` and `..` have a name too, without following links


def _plan(origin: Path, target: str) -> Iterator[tuple[Path, str, int | None]]:
    """What to copy to where, with the mode of files; None stands for a folder."""
    if not origin.is_dir():
        yield origin, target, origin.stat().st_mode & 0o777
        return
    for folder, folders, files in os.walk(origin):
        inside = posixpath.normpath(posixpath.join(target, Path(folder).relative_to(origin).as_posix()))
        yield Path(folder), inside, None
        folders.sort()
        for name in sorted([*files, *(name for name in folders if Path(folder, name).is_symlink())]):
            file = Path(folder, name)
            if file.is_symlink() or not file.is_file():
                say(f"skipped, not a regular file: {file}")
            else:
                yield file, posixpath.join(inside, name), file.stat().st_mode & 0o777


async def _nothing() -> AsyncIterator[bytes]:
    """What a terminal or a closed stdin gives."""
    return
    yield


async def _download(session: Session, path: str, dst: str) -> None:
    if dst == "-":
        await _print(session, path)
        return
    if await _kind(session, path) != "directory":
        await session.download(path, _target(dst, posixpath.basename(path)))
        return
    base = posixpath.normpath(path)
    target = _target(dst, "" if base == "." else posixpath.basename(base))
    listing = await session.list(path, recursive=True, max_entries=_MAX_ENTRIES)
    target.mkdir(parents=True, exist_ok=True)
    for entry in listing.entries:
        inside = place(target, posixpath.relpath(entry.path, base))
        if entry.kind.value == "directory":
            inside.mkdir(parents=True, exist_ok=True)
        elif entry.kind.value == "file":
            inside.parent.mkdir(parents=True, exist_ok=True)
            await session.download(entry.path, inside)
        else:
            say(f"skipped, not a regular file: {entry.path}")
    if listing.truncated:
        raise errors.TooManyFiles(f"{path} has more than {_MAX_ENTRIES} entries: only these were copied")


def _target(dst: str, name: str) -> Path:
    """A folder as target means: under its old name in there."""
    folder = Path(dst)
    return place(folder, name) if name and (dst.endswith("/") or folder.is_dir()) else folder


async def _print(session: Session, path: str) -> None:
    guest, sink, offset = await session.guest(), Sink(1), 0
    more = True
    while more:  # in pieces: a stalled reader stalls us, not the connection
        content, more, _ = await guest.read_file(path, offset, _READ_BYTES)
        await sink.write(content)
        offset += len(content)

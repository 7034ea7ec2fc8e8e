"""`holdfast cp`: files and folders into a session and out of it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import errors
from . import _complete
from ._common import Command, Key, execute, say, takes_key
from ._live import Sink, source
from ._options import place
from ._progress import Bar

if TYPE_CHECKING:
    from ..aio import Session
    from ..code.transfer import Copied

_READ_BYTES = 1 << 20


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
@click.option("-r", "--recursive", is_flag=True, help="For those who are used to it: folders are copied anyway.")
@click.argument("src", shell_complete=_complete.files)
@click.argument("dst", shell_complete=_complete.files)
def command(key: Key, recursive: bool, src: str, dst: str) -> int:
    """Copy SRC to DST; a path of the session is written :PATH.

    `-` is stdin or stdout. Folders are copied with all that is in them; links are skipped. Files appear when they are
    complete.
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


async def _upload(session: Session, src: str, path: str) -> None:
    if src == "-":
        if not path or path.endswith("/"):
            raise click.UsageError("stdin has no name: say :PATH of a file")
        await (await session.guest()).write_file(path, source() or _nothing())
        return
    path = path or "."
    if path.endswith("/") or await _kind(session, path) == "directory":
        path = posixpath.normpath(posixpath.join(path, _name(src)))
    with Bar(src) as bar:
        copied = await session.upload(src, path, on_progress=bar)
    _confess(copied)


def _name(src: str) -> str:
    return Path(os.path.abspath(src)).name  # noqa: PTH100  `.` and `..` have a name too, without following links


async def _nothing() -> AsyncIterator[bytes]:
    """What a terminal or a closed stdin gives."""
    return
    yield


async def _download(session: Session, path: str, dst: str) -> None:
    if dst == "-":
        await _print(session, path)
        return
    with Bar(path) as bar:
        copied = await session.download(path, _target(dst, path), on_progress=bar)
    _confess(copied)


def _target(dst: str, path: str) -> Path:
    """A folder as target means: under its old name in there."""
    folder, name = Path(dst), posixpath.basename(posixpath.normpath(path))
    return place(folder, name) if name not in ("", ".", "..") and (dst.endswith("/") or folder.is_dir()) else folder


def _confess(copied: Copied) -> None:
    for path in copied.skipped:
        say(f"skipped, not a regular file: {path}")


async def _print(session: Session, path: str) -> None:
    guest, sink, offset = await session.guest(), Sink(1), 0
    more = True
    while more:  # in pieces: a stalled reader stalls us, not the connection
        content, more, _ = await guest.read_file(path, offset, _READ_BYTES)
        await sink.write(content)
        offset += len(content)

"""Files and whole trees between this machine and a sandbox: file by file over the guest's calls, several in flight.

The rules, both ways:
- The contents of a folder go into the target, which is made if it is missing. What is there stays; a file of the same
  name is replaced. A file goes to the target itself, or under its own name into a target that ends with `/`.
- Regular files with their permission bits, and folders, empty ones too. Links, pipes, sockets and devices are skipped,
  named in `skipped`, and never followed.
- Each file appears when it is complete. A copy of a tree that fails or is cancelled leaves the files that were.
- What a sandbox says is hostile: `HostTree` keeps its names beneath the target, `max_files` and `max_bytes` bound how
  many there are and how much they hold.
"""

from __future__ import annotations

import functools
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from .. import errors
from ..guest.client import GuestClient
from ..guest.protocol import MAX_DATA_BYTES, FileKind
from ..results import FileEntry
from .hosttree import HostFile, HostTree, Parts

MAX_FILES = 100_000
_PIECE_BYTES = 1 << 20
_IN_FLIGHT = 8
_T = TypeVar("_T")

OnTransfer = Callable[[int, int | None], object]
"""Called with the bytes that were copied and those that there are, None where nobody knows. It must be quick."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied."""

    files: int
    folders: int
    size_bytes: int
    skipped: tuple[str, ...] = ()
    """what is no regular file and no folder, or went away meanwhile"""


class _Progress:
    """Counts, tells the caller, and stops what is more than it may be."""

    def __init__(self, tell: OnTransfer | None, total: int | None, most: int | None = None) -> None:
        self._tell, self._total, self._most = tell, total, most
        self.done = 0

    def add(self, size: int) -> None:
        self.done += size
        if self._most is not None and self.done > self._most:
            raise errors.FileTooLarge(f"there are more than {self._most} bytes to copy; allow more with max_bytes")
        if self._tell:
            self._tell(self.done, self._total)


async def upload(
    guest: GuestClient, source: str | Path, path: str, mode: int | None, tell: OnTransfer | None, max_files: int
) -> Copied:
    """Copy a file or a folder of this machine into the workspace."""
    if await anyio.Path(source).is_dir():
        return await _upload_tree(guest, Path(source), path, mode, tell, max_files)
    if path.endswith("/"):
        path += Path(source).name
    fd = await _thread(os.open, source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        regular = stat.S_ISREG(found.st_mode)
        progress = _Progress(tell, found.st_size if regular else None)
        keep = stat.S_IMODE(found.st_mode) & 0o777 if regular and mode is None else mode
        await guest.write_file(path, _pieces(fd, progress), keep)
    finally:
        os.close(fd)
    return Copied(1, 0, progress.done)


async def _upload_tree(
    guest: GuestClient, source: Path, path: str, mode: int | None, tell: OnTransfer | None, max_files: int
) -> Copied:
    tree = await _thread(HostTree, source)
    try:
        found = await _thread(tree.list, max_files)
        folders, files = _split(found.entries, lambda entry: entry.is_folder)
        progress = _Progress(tell, sum(file.size_bytes for file in files))
        await guest.mkdir(path)
        # A file brings its folders along.
        brought = {file.parts[:depth] for file in files for depth in range(1, len(file.parts))}
        empty = (folder for folder in folders if folder.parts not in brought)
        await _each(empty, lambda folder: guest.mkdir(posixpath.join(path, *folder.parts)))

        async def copy(file: HostFile) -> None:
            fd = await _thread(tree.open, file.parts)
            try:
                first = await _thread(os.read, fd, MAX_DATA_BYTES)
                progress.add(len(first))
                data = first if len(first) < MAX_DATA_BYTES else _pieces(fd, progress, first)
                target = posixpath.join(path, *file.parts)
                await guest.write_file(target, data, file.mode if mode is None else mode)
            finally:
                os.close(fd)

        await _each(files, copy)
    finally:
        tree.close()
    return Copied(len(files), len(folders), progress.done, found.skipped)


async def _pieces(fd: int, progress: _Progress, first: bytes = b"") -> AsyncIterator[bytes]:
    if first:
        yield first
    while piece := await _thread(os.read, fd, _PIECE_BYTES):
        yield piece
        progress.add(len(piece))


async def download(
    guest: GuestClient,
    path: str,
    target: str | Path,
    tell: OnTransfer | None,
    max_files: int,
    max_bytes: int | None,
) -> Copied:
    """Copy a file or a folder of the workspace to this machine."""
    entry = await guest.stat(path)
    if entry.kind is FileKind.DIRECTORY:
        return await _download_tree(guest, entry, Path(target), tell, max_files, max_bytes)
    folder, name = Path(target).parent, Path(target).name
    if os.fspath(target).endswith("/") or await anyio.Path(target).is_dir():
        folder, name = Path(target), posixpath.basename(posixpath.normpath(path))
    progress = _Progress(tell, entry.size_bytes, max_bytes)
    tree = await _thread(HostTree, folder)
    try:
        await _fetch(guest, tree, path, (name,), entry.mode, progress)
    finally:
        tree.close()
    return Copied(1, 0, progress.done)


async def _download_tree(
    guest: GuestClient,
    base: FileEntry,
    target: Path,
    tell: OnTransfer | None,
    max_files: int,
    max_bytes: int | None,
) -> Copied:
    listing = await guest.list_files(base.path, recursive=True, max_entries=max_files)
    placed = [(entry, _beneath(base.path, entry.path)) for entry in listing.entries]
    files, others = _split(placed, lambda each: each[0].kind is FileKind.FILE)
    folders, odd = _split(others, lambda each: each[0].kind is FileKind.DIRECTORY)
    skipped = [entry.path for entry, _ in odd]
    progress = _Progress(tell, sum(entry.size_bytes for entry, _ in files), max_bytes)
    await anyio.Path(target).mkdir(parents=True, exist_ok=True)
    tree = await _thread(HostTree, target)

    def make_folders() -> None:
        modes = {parts: entry.mode for entry, parts in folders}
        for parts in sorted({*modes, *(parts[:-1] for _, parts in files if len(parts) > 1)}):
            tree.make_folder(parts, modes.get(parts, 0o755))

    async def copy(each: tuple[FileEntry, Parts]) -> None:
        entry, parts = each
        try:
            await _fetch(guest, tree, entry.path, parts, entry.mode, progress)
        except errors.SandboxFileNotFound:
            skipped.append(entry.path)

    try:
        await _thread(make_folders)
        await _each(files, copy)
    finally:
        tree.close()
    if listing.truncated:
        raise errors.TooManyFiles(
            f"not all of {errors.printable(base.path)} was copied: it holds more than {max_files} entries, "
            "or a folder that is too deep or cannot be read"
        )
    return Copied(len(placed) - len(others) - len(skipped) + len(odd), len(folders), progress.done, tuple(skipped))


async def _fetch(guest: GuestClient, tree: HostTree, path: str, parts: Parts, mode: int, progress: _Progress) -> None:
    with await _thread(tree.create, parts, mode) as file:

        def take(data: bytes) -> None:
            progress.add(len(data))
            # Straight to the file: the operating system's buffer takes it faster than a thread would.
            file.write(data)

        await guest.read_file_into(path, take)
        await _thread(file.keep)


def _beneath(base: str, path: str) -> Parts:
    """The components of a name that a sandbox sent.

    Raises:
        ProtocolError: it does not lead beneath `base`, or cannot be a name here.
    """
    prefix = "" if base == "." else f"{base}/"
    parts = tuple(path.removeprefix(prefix).split("/"))
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if not path.startswith(prefix) or b"\0" in encoded or any(part in ("", ".", "..") for part in parts):
        raise errors.ProtocolError(
            f"the guest listed {errors.printable(path)!r}, which is no name beneath {errors.printable(base)!r}"
        )
    return parts


async def _each(items: Iterable[_T], work: Callable[[_T], Awaitable[object]]) -> None:
    """`work` on all items, several at once; the first error ends it."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:  # shared by all workers
            await work(item)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.start_soon(worker)
    except ExceptionGroup as group:
        found: Exception = group
        while isinstance(found, ExceptionGroup):
            found = found.exceptions[0]
        raise found from None


def _split(items: Iterable[_T], first: Callable[[_T], bool]) -> tuple[list[_T], list[_T]]:
    sides: tuple[list[_T], list[_T]] = [], []
    for item in items:
        sides[0 if first(item) else 1].append(item)
    return sides


async def _thread(work: Callable[..., _T], *args: object) -> _T:
    return await anyio.to_thread.run_sync(functools.partial(work, *args))

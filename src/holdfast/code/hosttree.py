"""A folder of this machine, as the start or the end of a copy: nothing outside of it is ever read or written.

Every name is opened one component at a time, relative to the folder before it, and never through a link. So neither a
name that a sandbox chose nor a link that somebody puts there meanwhile leads out of the folder. All calls block.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .. import errors

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BENEATH = _FOLDER | os.O_NOFOLLOW
# Not blocked by a pipe that took a file's place.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]
"""A path beneath the folder, by components."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """One thing to copy into a sandbox."""

    parts: Parts
    mode: int
    size_bytes: int
    """as it was when the tree was listed"""
    is_folder: bool


@dataclass(frozen=True, slots=True)
class HostListing:
    entries: tuple[HostFile, ...]
    skipped: tuple[str, ...]
    """links, sockets and whatever else cannot be copied"""


class HostTree:
    """The folder itself is named by the caller, through links too; what is beneath it is not trusted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = os.open(root, _FOLDER)

    def close(self) -> None:
        os.close(self._fd)

    def list(self, max_entries: int) -> HostListing:
        """All that is in it, a folder before what it holds.

        Raises:
            TooManyFiles: it holds more than `max_entries`.
        """
        entries: list[HostFile] = []
        skipped: list[str] = []
        waiting: list[Parts] = [()]
        while waiting:
            folder = waiting.pop()
            with self._opened(folder) as fd:
                for name in sorted(os.listdir(fd)):  # noqa: PTH208  of a descriptor
                    try:
                        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # it went away
                    parts = (*folder, name)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(parts)
                    elif not stat.S_ISREG(found.st_mode):
                        skipped.append(self._shown(parts))
                        continue
                    if len(entries) == max_entries:
                        raise errors.TooManyFiles(f"{self._root} holds more than {max_entries} files and folders")
                    entries.append(_described(parts, found))
        return HostListing(tuple(entries), tuple(skipped))

    def open(self, parts: Parts) -> int:
        """A descriptor of a regular file, to read from.

        Raises:
            PathNotAllowed: it is none, or there is a link on the way to it.
        """
        with self._opened(parts[:-1]) as folder:
            try:
                fd = os.open(parts[-1], _READ, dir_fd=folder)
            except OSError as error:
                raise self._explained(error, parts) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise errors.PathNotAllowed(f"{self._shown(parts)} is no longer a regular file")
        return fd

    def make_folder(self, parts: Parts, mode: int) -> None:
        """With what is missing on the way to it. One that is there stays as it is."""
        for depth in range(1, len(parts) + 1):
            with self._opened(parts[: depth - 1]) as folder, contextlib.suppress(FileExistsError):
                # Ours to write to, whatever its mode: files are to go into it.
                os.mkdir(parts[depth - 1], (mode & 0o777 if depth == len(parts) else 0o777) | 0o700, dir_fd=folder)
        with self._opened(parts):
            pass  # it is a folder, and no link

    def create(self, parts: Parts, mode: int) -> NewFile:
        """A file that appears under its name when it is complete. Its folder must be there."""
        with self._opened(parts[:-1]) as folder:
            return NewFile(os.dup(folder), parts[-1], mode & 0o777)

    @contextlib.contextmanager
    def _opened(self, parts: Parts) -> Iterator[int]:
        fd = os.dup(self._fd)
        try:
            for at, name in enumerate(parts):
                try:
                    below = os.open(name, _BENEATH, dir_fd=fd)
                except OSError as error:
                    raise self._explained(error, parts[: at + 1]) from error
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _explained(self, error: OSError, parts: Parts) -> OSError:
        with contextlib.suppress(OSError):
            if os.path.islink(self._root.joinpath(*parts)):  # noqa: PTH114  for the message only
                return errors.PathNotAllowed(f"{self._shown(parts)} is a link, and links are not followed")
        return OSError(error.errno, error.strerror, str(self._root.joinpath(*parts)))

    def _shown(self, parts: Parts) -> str:
        return str(self._root.joinpath(*parts))


class NewFile:
    """A file on its way: `write`, then `keep`; left without that, it is gone. Owns the descriptor of its folder."""

    def __init__(self, folder: int, name: str, mode: int) -> None:
        self._folder, self._name = folder, name
        self._part = f".{secrets.token_hex(8)}.part"  # a name of its own length: the file's may be the longest there is
        self._kept = False
        try:
            self._fd = os.open(self._part, _CREATE, mode, dir_fd=folder)
        except BaseException:
            os.close(folder)
            raise

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        if not self._kept:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._part, dir_fd=self._folder)
        os.close(self._folder)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def keep(self) -> None:
        """Under its name now. A file or a link of that name is replaced, and never followed."""
        os.replace(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._kept = True


def _described(parts: Parts, found: os.stat_result) -> HostFile:
    folder = stat.S_ISDIR(found.st_mode)
    return HostFile(parts, stat.S_IMODE(found.st_mode) & 0o777, 0 if folder else found.st_size, folder)

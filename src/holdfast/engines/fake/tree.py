"""The workspace of a fake sandbox: a tree of files in memory, with the guest's rules and the guest's refusals."""

from __future__ import annotations

import posixpath
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ... import errors
from ...results import FileEntry, FileKind

_MAX_PATH_BYTES = 4096
_MAX_NAME_BYTES = 255
_MAX_LINKS = 40
_MAX_DEPTH = 128


class _Refused(Exception):
    """Why something is not done: words that follow `cannot read 'x': it`."""

    def __init__(self, kind: type[errors.SandboxError], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(slots=True)
class _Node:
    mode: int = 0o644
    modified: float = field(default_factory=time.time)


@dataclass(slots=True)
class _File(_Node):
    content: bytes = b""


@dataclass(slots=True)
class _Link(_Node):
    target: str = ""


@dataclass(slots=True)
class _Directory(_Node):
    entries: dict[str, _Node] = field(default_factory=dict)


@dataclass(slots=True)
class _Place:
    """A name in a directory, and what is there; `parent` is None for the workspace itself."""

    parent: _Directory | None
    base: str
    node: _Node | None


class FakeFiles:
    """Files by path, relative to the workspace or absolute beneath it. Programs use it; the guest's requests too.

    Errors are those of a session: `holdfast.errors.SandboxFileNotFound`, which is a FileNotFoundError, and so on.
    """

    def __init__(
        self,
        workspace: str = "/workspace",
        max_bytes: int | None = None,
        max_files: int | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        self.workspace = workspace
        self.max_bytes, self.max_files, self._max_file_bytes = max_bytes, max_files, max_file_bytes
        self.used_bytes, self.used_files = 0, 1
        self._root = _Directory(mode=0o755)

    # --- reading

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        return self.open(path)[0]

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def open(self, path: str) -> tuple[bytes, FileEntry]:
        """The contents of a file, and what it is."""
        with self._explaining("read", path):
            name = self._name(path)
            node = self._file(self._find(name, follow=True))
            if not node.mode & 0o400:
                raise _closed()
            return node.content, _entry(name, node)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except errors.FileError:
            return False
        return True

    def stat(self, path: str) -> FileEntry:
        """What a path leads to; an empty path is the workspace."""
        with self._explaining("look at", path):
            name = self._name(path or ".")
            return _entry(name, _there(self._find(name, follow=True)))

    def list(
        self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000
    ) -> tuple[list[FileEntry], bool]:
        """Entries, by name, a directory before what is in it; and whether some are missing. Links are not followed."""
        with self._explaining("list", path):
            if max_entries < 0:
                raise _Refused(errors.InvalidRequest, "cannot be listed with a negative max_entries")
            name = self._name(path or ".")
            node = _there(self._find(name, follow=True))
            if not isinstance(node, _Directory):
                raise _not_a_directory()
            if not node.mode & 0o400:
                raise _closed()
            found: list[FileEntry] = []
            for entry in _below(node, name, recursive, 1):
                if entry is None or len(found) == max_entries:
                    return found, True
                found.append(entry)
            return found, False

    # --- changing

    def write(
        self, path: str, content: str | bytes, *, mode: int | None = None, overwrite: bool = True
    ) -> FileEntry:
        """Make or replace a file, and the directories above it."""
        upload = Upload(self, path, mode, overwrite)
        upload.add(content.encode() if isinstance(content, str) else content)
        return upload.commit()

    def mkdir(self, path: str) -> FileEntry:
        """Make a directory and its parents; one that is there already is fine."""
        with self._explaining("make directory", path):
            name = self._name(path)
            place = self._find(name, follow=True, make=True)
            if place.node is not None and not isinstance(place.node, _Directory):
                raise _Refused(errors.SandboxFileExists, "exists already, and is not a directory")
            if place.node is None:
                place.node = self._add(place, _Directory(mode=0o755))
            return _entry(name, place.node)

    def symlink(self, target: str, path: str) -> None:
        """Make a link at `path`. As in a real sandbox it may lead anywhere; following it may be refused."""
        with self._explaining("link", path):
            place = self._find(self._name(path), make=True)
            if place.node is not None:
                raise _exists()
            self._add(place, _Link(mode=0o777, target=target))

    def chmod(self, path: str, mode: int) -> None:
        with self._explaining("change", path):
            _there(self._find(self._name(path), follow=True)).mode = mode & 0o7777

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or a directory."""
        with self._explaining("delete", path):
            place = self._find(self._name(path))
            node = _there(place)
            if isinstance(node, _Directory) and node.entries and not recursive:
                raise _not_empty()
            self._remove(place)

    def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileEntry:
        """Give something another name. The destination is the new name, never a directory to move into."""
        with self._explaining("move", source):
            start = self._find(self._name(source))
            node = _there(start)
            if start.parent is None:
                raise _the_workspace()
        with self._explaining("move", destination):
            name = self._name(destination)
            end = self._find(name, make=True)
            if end.parent is None:
                raise _the_workspace()
            if end.node is not None and not overwrite:
                raise _exists()
            if end.node is not node:
                self._rename(start, node, end)
            return _entry(name, node)

    def _rename(self, start: _Place, node: _Node, end: _Place) -> None:
        assert start.parent is not None
        assert end.parent is not None
        if isinstance(node, _Directory) and end.parent in _directories(node):
            raise _Refused(errors.InvalidRequest, "is not possible: a directory cannot go into itself")
        if isinstance(end.node, _Directory) and not isinstance(node, _Directory):
            raise _is_a_directory()
        if isinstance(node, _Directory) and end.node is not None:
            if not isinstance(end.node, _Directory):
                raise _not_a_directory()
            if end.node.entries:
                raise _not_empty()
        if end.node is not None:
            self._remove(end)
        _writable(start.parent)
        _writable(end.parent)
        del start.parent.entries[start.base]
        end.parent.entries[end.base] = node

    # --- the tree

    @property
    def full(self) -> bool:
        """There is no space or no file left."""
        return (self.max_bytes is not None and self.used_bytes + 4096 > self.max_bytes) or (
            self.max_files is not None and self.used_files >= self.max_files
        )

    def _name(self, path: str) -> str:
        """The path relative to the workspace, `.` for the workspace itself; `..` is taken out by text."""
        if not path:
            raise _Refused(errors.InvalidRequest, "is empty; name a path beneath the workspace")
        if _size(path) > _MAX_PATH_BYTES:
            raise _too_long()
        if path.startswith("/"):
            clean = posixpath.normpath("/" + path.lstrip("/")) + "/"
            if not clean.startswith(self.workspace.rstrip("/") + "/"):
                raise _outside()
            path = clean[len(self.workspace.rstrip("/")) + 1 :] or "."
        name = posixpath.normpath(path)
        if ".." in name.split("/"):
            raise _outside()
        if any(_size(part) > _MAX_NAME_BYTES for part in name.split("/")):
            raise _too_long()
        return name

    def _find(self, name: str, *, follow: bool = False, make: bool = False) -> _Place:
        """Walk to a name. `follow` goes through a link at the end of it, `make` makes missing directories on the way."""
        here, above, rest = self._root, list[_Directory](), deque(name.split("/"))
        links, through_link = 0, False
        while rest:
            part = rest.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if not above:
                    raise _outside()
                here = above.pop()
                continue
            if not here.mode & 0o100:
                raise _closed()
            node, last = here.entries.get(part), not rest
            if isinstance(node, _Link) and (follow or not last):
                links, through_link = links + 1, through_link or last
                if links > _MAX_LINKS:
                    raise _Refused(errors.SymlinkLoop, "leads through too many symbolic links, or a loop of them")
                if node.target.startswith("/"):
                    raise _outside()
                rest.extendleft(reversed(node.target.split("/")))
            elif last:
                if node is None and through_link:
                    raise _missing()
                return _Place(here, part, node)
            else:
                if node is None:
                    if not make or through_link:
                        raise _missing()
                    node = self._add(_Place(here, part, None), _Directory(mode=0o755))
                if not isinstance(node, _Directory):
                    raise _not_a_directory()
                above.append(here)
                here = node
        return _Place(None, ".", here)

    def _file(self, place: _Place) -> _File:
        node = _there(place)
        if isinstance(node, _Directory):
            raise _is_a_directory()
        if not isinstance(node, _File):
            raise _Refused(errors.NotRegularFile, "is not a regular file; only those are read and written")
        return node

    def _add(self, place: _Place, node: _Node) -> _Node:
        assert place.parent is not None
        _writable(place.parent)
        self.check_room(1, 0)
        place.parent.entries[place.base] = node
        self.used_files += 1
        return node

    def check_room(self, files: int, size: int) -> None:
        """Refuse what would not fit any more."""
        if self._max_file_bytes is not None and size > self._max_file_bytes:
            limit = self._max_file_bytes
            raise _Refused(
                errors.FileTooLarge, f"is larger than a file may be, which is {limit} bytes"
            )
        if self.max_files is not None and self.used_files + files > self.max_files:
            raise _Refused(
                errors.TooManyFiles,
                f"would be one file too many: the limit is {self.max_files}; delete something first",
            )
        if self.max_bytes is not None and self.used_bytes + size > self.max_bytes:
            raise _Refused(
                errors.WorkspaceFull, "does not fit: the workspace is full; delete something first"
            )

    def _remove(self, place: _Place) -> None:
        if place.parent is None:
            raise _the_workspace()
        _writable(place.parent)
        node = place.parent.entries.pop(place.base)
        for gone in _nodes(node):
            self.used_files -= 1
            self.used_bytes -= len(gone.content) if isinstance(gone, _File) else 0

    @contextmanager
    def _explaining(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except _Refused as refused:
            shown = path if len(path) <= 200 else path[:200] + "..."
            raise refused.kind(f'cannot {verb} "{shown}": it {refused}') from None


class Upload:
    """A file that is being written: it takes its name when all of it is there."""

    def __init__(self, files: FakeFiles, path: str, mode: int | None, overwrite: bool) -> None:
        self._files, self._path, self._mode, self._overwrite = files, path, mode, overwrite
        self._content = bytearray()
        with files._explaining("write", path):
            self._name = files._name(path)
            if self._name == "." or path.endswith("/"):
                raise _is_a_directory()
            if mode is not None and not 0 <= mode <= 0o7777:
                raise _Refused(errors.InvalidRequest, f"cannot have the mode {mode:#o}; give permission bits")
            self._target()

    def _target(self) -> _Place:
        place = self._files._find(self._name, follow=True, make=True)
        if place.node is None:
            self._files.check_room(1, 0)
        else:
            self._files._file(place)
            if not self._overwrite:
                raise _exists()
        return place

    def add(self, data: bytes) -> None:
        with self._files._explaining("write", self._path):
            self._files.check_room(0, len(self._content) + len(data))
        self._content += data

    def commit(self) -> FileEntry:
        files = self._files
        with files._explaining("write", self._path):
            place = self._target()
            assert place.parent is not None
            _writable(place.parent)
            files.check_room(0, len(self._content))
            mode = 0o644 if place.node is None else place.node.mode
            if place.node is not None:
                files._remove(place)
            node = _File(mode=(mode if self._mode is None else self._mode) & 0o777, content=bytes(self._content))
            files._add(place, node)
            files.used_bytes += len(node.content)
            return _entry(self._name, node)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _there(place: _Place) -> _Node:
    if place.node is None:
        raise _missing()
    return place.node


def _writable(directory: _Directory) -> None:
    if directory.mode & 0o300 != 0o300:
        raise _closed()


def _nodes(node: _Node) -> Iterator[_Node]:
    stack = [node]
    while stack:
        yield (here := stack.pop())
        if isinstance(here, _Directory):
            stack += here.entries.values()


def _directories(node: _Node) -> list[_Node]:
    """By identity: two empty directories are equal and not the same."""
    return _Same([one for one in _nodes(node) if isinstance(one, _Directory)])


class _Same(list[_Node]):
    def __contains__(self, wanted: object) -> bool:
        return any(one is wanted for one in self)


def _below(directory: _Directory, prefix: str, recursive: bool, depth: int) -> Iterator[FileEntry | None]:
    """None: something is there that cannot be listed."""
    for base, node in sorted(directory.entries.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")):
        name = base if prefix == "." else f"{prefix}/{base}"
        yield _entry(name, node)
        if recursive and isinstance(node, _Directory):
            if depth >= _MAX_DEPTH or node.mode & 0o500 != 0o500:
                yield None
            else:
                yield from _below(node, name, True, depth + 1)


def _entry(name: str, node: _Node) -> FileEntry:
    kind, size = FileKind.DIRECTORY, 0
    if isinstance(node, _File):
        kind, size = FileKind.FILE, len(node.content)
    elif isinstance(node, _Link):
        kind, size = FileKind.SYMLINK, _size(node.target)
    return FileEntry(name, kind, size, node.mode, int(node.modified * 1000))


def _missing() -> _Refused:
    return _Refused(errors.SandboxFileNotFound, "does not exist")


def _exists() -> _Refused:
    return _Refused(errors.SandboxFileExists, "exists already; allow overwriting, or choose another name")


def _outside() -> _Refused:
    return _Refused(
        errors.PathNotAllowed,
        "is outside the workspace, or leads there; use a path beneath the workspace",
    )


def _the_workspace() -> _Refused:
    return _Refused(errors.PathNotAllowed, "is the workspace itself; name something in it")


def _is_a_directory() -> _Refused:
    return _Refused(errors.SandboxIsADirectory, "is a directory; name a file")


def _not_a_directory() -> _Refused:
    return _Refused(errors.SandboxNotADirectory, "is not a directory, or one of its parents is not")


def _not_empty() -> _Refused:
    return _Refused(
        errors.DirectoryNotEmpty, "is a directory with something in it; delete that recursively"
    )


def _too_long() -> _Refused:
    return _Refused(errors.NameTooLong, "is too long; a path may have 4096 bytes, each name in it 255")


def _closed() -> _Refused:
    return _Refused(errors.PermissionDenied, "is closed to the sandbox's user; change its mode first")

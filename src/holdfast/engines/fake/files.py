"""The workspace of a fake sandbox: a tree of files in memory, with the guest's rules and the guest's refusals."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ... import errors
from ...results import FileEntry, Listing
from .nodes import Directory, File, Link, Node, Place, Refused, entry, listed, raw, walk

_MAX_PATH_BYTES = 4096
_MAX_NAME_BYTES = 255
_MAX_LINKS = 40


class FakeFiles:
    """Files by path, relative to the workspace or absolute beneath it. Programs use it; a session's calls end here.

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
        self._root = Directory(0o755)

    # --- reading

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        return self.open(path)[0]

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def open(self, path: str) -> tuple[bytes, FileEntry]:
        """The contents of a file, and what it is."""
        with explained("read", path):
            name = self.name(path)
            node = self.find(name, follow=True).file()
            if not node.mode & 0o400:
                raise Refused(errors.PermissionDenied)
            return node.content, entry(name, node)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except errors.FileError:
            return False
        return True

    def stat(self, path: str) -> FileEntry:
        """What a path leads to; an empty path is the workspace."""
        with explained("look at", path):
            name = self.name(path or ".")
            return entry(name, self.find(name, follow=True).existing())

    def list(self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000) -> Listing:
        """Entries by name, a directory before what is in it. Links are listed, and not followed."""
        with explained("list", path):
            if max_entries < 0:
                raise Refused(errors.InvalidRequest, "cannot be listed with a negative max_entries")
            name = self.name(path or ".")
            node = self.find(name, follow=True).existing()
            if not isinstance(node, Directory):
                raise Refused(errors.SandboxNotADirectory)
            if not node.mode & 0o400:
                raise Refused(errors.PermissionDenied)
            found: list[FileEntry] = []
            truncated = False
            for one in listed(node, name, recursive):
                if one is None or len(found) == max_entries:
                    truncated = True
                if len(found) == max_entries:
                    break
                if one is not None:
                    found.append(one)
            return Listing(tuple(found), truncated)

    # --- changing

    def write(self, path: str, content: str | bytes, *, mode: int | None = None, overwrite: bool = True) -> FileEntry:
        """Make or replace a file, and the directories above it."""
        upload = Upload(self, path, mode, overwrite)
        upload.add(content.encode() if isinstance(content, str) else content)
        return upload.commit()

    def mkdir(self, path: str) -> FileEntry:
        """Make a directory and its parents; one that is there already is fine."""
        with explained("make directory", path):
            name = self.name(path)
            place = self.find(name, follow=True, make=True)
            if place.node is not None and not isinstance(place.node, Directory):
                raise Refused(errors.SandboxFileExists, "exists already, and is not a directory")
            return entry(name, place.node or self.add(place, Directory(0o755)))

    def symlink(self, target: str, path: str) -> None:
        """Make a link at `path`. As in a real sandbox it may lead anywhere; to follow it may be refused."""
        with explained("link", path):
            place = self.find(self.name(path), make=True)
            if place.node is not None:
                raise Refused(errors.SandboxFileExists)
            self.add(place, Link(0o777, target=target))

    def chmod(self, path: str, mode: int) -> None:
        with explained("change", path):
            self.find(self.name(path), follow=True).existing().mode = mode & 0o7777

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or a directory."""
        with explained("delete", path):
            place = self.find(self.name(path))
            node = place.existing()
            place.folder()
            if isinstance(node, Directory) and node.entries and not recursive:
                raise Refused(errors.DirectoryNotEmpty)
            self.remove(place)

    def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileEntry:
        """Give something another name. The destination is the new name, never a directory to move into."""
        with explained("move", source):
            start = self.find(self.name(source))
            node = start.existing()
            old = start.folder()
        with explained("move", destination):
            name = self.name(destination)
            end = self.find(name, make=True)
            new = end.folder()
            if end.node is not None and not overwrite:
                raise Refused(errors.SandboxFileExists)
            if end.node is not node:
                self._clear(node, end)
                del old.entries[start.base]
                new.entries[end.base] = node
            return entry(name, node)

    def _clear(self, node: Node, end: Place) -> None:
        """Make way for `node`, if the kernel would."""
        if any(end.parent is below for below in walk(node)):
            raise Refused(errors.InvalidRequest, "is not possible: a directory cannot go into itself")
        if end.node is None:
            return
        if isinstance(end.node, Directory) and not isinstance(node, Directory):
            raise Refused(errors.SandboxIsADirectory)
        if isinstance(node, Directory) and not isinstance(end.node, Directory):
            raise Refused(errors.SandboxNotADirectory)
        if isinstance(end.node, Directory) and end.node.entries:
            raise Refused(errors.DirectoryNotEmpty)
        self.remove(end)

    # --- the tree

    @property
    def full(self) -> bool:
        """There is no space or no file left."""
        return (self.max_bytes is not None and self.used_bytes + 4096 > self.max_bytes) or (
            self.max_files is not None and self.used_files >= self.max_files
        )

    def name(self, path: str) -> str:
        """The path relative to the workspace, `.` for the workspace itself; `..` is taken out by text."""
        if not path:
            raise Refused(errors.InvalidRequest, "is empty; name a path beneath the workspace")
        if len(raw(path)) > _MAX_PATH_BYTES:
            raise Refused(errors.NameTooLong)
        if path.startswith("/"):
            clean = posixpath.normpath("/" + path.lstrip("/")) + "/"
            if not clean.startswith(f"{self.workspace}/"):
                raise Refused(errors.PathNotAllowed)
            path = clean[len(self.workspace) + 1 :] or "."
        parts = posixpath.normpath(path).split("/")
        if ".." in parts:
            raise Refused(errors.PathNotAllowed)
        if any(len(raw(part)) > _MAX_NAME_BYTES for part in parts):
            raise Refused(errors.NameTooLong)
        return "/".join(parts)

    def find(self, name: str, *, follow: bool = False, make: bool = False) -> Place:
        """Walk to a name. `follow` goes through a link at its end, `make` makes missing directories on the way."""
        here, above, rest = self._root, list[Directory](), deque(name.split("/"))
        links, make_last = 0, True
        while rest:
            part = rest.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if not above:
                    raise Refused(errors.PathNotAllowed)
                here = above.pop()
                continue
            if not here.mode & 0o100:
                raise Refused(errors.PermissionDenied)
            node, last = here.entries.get(part), not rest
            if isinstance(node, Link) and (follow or not last):
                links += 1
                make_last = make_last and not last  # a link to nothing leads nowhere
                rest.extendleft(reversed(_target(node, links).split("/")))
                continue
            if node is None and not (make_last and (last or make)):
                raise Refused(errors.SandboxFileNotFound)
            if last:
                return Place(here, part, node)
            below = node or self.add(Place(here, part, None), Directory(0o755))
            if not isinstance(below, Directory):
                raise Refused(errors.SandboxNotADirectory)
            above.append(here)
            here = below
        return Place(None, ".", here)

    def add(self, place: Place, node: Node) -> Node:
        folder = place.folder()
        self.check_room(1, 0)
        folder.entries[place.base] = node
        self.used_files += 1
        return node

    def remove(self, place: Place) -> None:
        for gone in walk(place.folder().entries.pop(place.base)):
            self.used_files -= 1
            self.used_bytes -= len(gone.content) if isinstance(gone, File) else 0

    def check_room(self, files: int, size: int) -> None:
        """Refuse what would not fit any more."""
        if self._max_file_bytes is not None and size > self._max_file_bytes:
            reason = f"is larger than a file may be, which is {self._max_file_bytes} bytes"
            raise Refused(errors.FileTooLarge, reason)
        if files and self.max_files is not None and self.used_files + files > self.max_files:
            reason = f"would be one file too many: the limit is {self.max_files}; delete something first"
            raise Refused(errors.TooManyFiles, reason)
        if self.max_bytes is not None and self.used_bytes + size > self.max_bytes:
            raise Refused(errors.WorkspaceFull)


class Upload:
    """A file that is being written: it takes its name when all of it is there."""

    def __init__(self, files: FakeFiles, path: str, mode: int | None = None, overwrite: bool = True) -> None:
        self._files, self._path, self._mode, self._overwrite = files, path, mode, overwrite
        self._content = bytearray()
        with explained("write", path):
            self._name = files.name(path)
            if self._name == "." or path.endswith("/"):
                raise Refused(errors.SandboxIsADirectory)
            if mode is not None and not 0 <= mode <= 0o7777:
                raise Refused(errors.InvalidRequest, f"cannot have the mode {mode:#o}; give permission bits")
            self._target()

    def _target(self) -> Place:
        place = self._files.find(self._name, follow=True, make=True)
        if place.node is None:
            self._files.check_room(1, 0)
        elif place.file() and not self._overwrite:
            raise Refused(errors.SandboxFileExists)
        place.folder()
        return place

    def add(self, data: bytes) -> None:
        with explained("write", self._path):
            self._files.check_room(0, len(self._content) + len(data))
        self._content += data

    def commit(self) -> FileEntry:
        with explained("write", self._path):
            place = self._target()
            self._files.check_room(0, len(self._content))
            mode = 0o644 if place.node is None else place.node.mode
            if place.node is not None:
                self._files.remove(place)
            node = File((mode if self._mode is None else self._mode) & 0o777, content=bytes(self._content))
            self._files.add(place, node)
            self._files.used_bytes += len(node.content)
            return entry(self._name, node)


@contextmanager
def explained(verb: str, path: str) -> Iterator[None]:
    """Turn a refusal into the error that the caller gets."""
    try:
        yield
    except Refused as refused:
        shown = path if len(path) <= 200 else path[:200] + "..."
        raise refused.kind(f'cannot {verb} "{shown}": it {refused}') from None


def _target(link: Link, links: int) -> str:
    if links > _MAX_LINKS:
        raise Refused(errors.SymlinkLoop)
    if link.target.startswith("/"):
        raise Refused(errors.PathNotAllowed)
    return link.target

"""What a fake workspace is made of: files, directories, links, and the reasons for which one is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ... import errors
from ...results import FileEntry, FileKind

MAX_DEPTH = 128


@dataclass(slots=True, eq=False)
class Node:
    mode: int
    modified: float = field(default_factory=time.time)


@dataclass(slots=True, eq=False)
class File(Node):
    content: bytes = b""


@dataclass(slots=True, eq=False)
class Link(Node):
    target: str = ""


@dataclass(slots=True, eq=False)
class Directory(Node):
    entries: dict[str, Node] = field(default_factory=dict[str, Node])


@dataclass(slots=True)
class Place:
    """A name in a directory, and what is there; `parent` is None for the workspace itself."""

    parent: Directory | None
    base: str
    node: Node | None

    def existing(self) -> Node:
        if self.node is None:
            raise Refused(errors.SandboxFileNotFound)
        return self.node

    def file(self) -> File:
        node = self.existing()
        if isinstance(node, Directory):
            raise Refused(errors.SandboxIsADirectory)
        if not isinstance(node, File):
            raise Refused(errors.NotRegularFile)
        return node

    def folder(self) -> Directory:
        """The directory that holds the name, which can be changed."""
        if self.parent is None:
            raise Refused(errors.PathNotAllowed, "is the workspace itself; name something in it")
        if self.parent.mode & 0o300 != 0o300:
            raise Refused(errors.PermissionDenied)
        return self.parent


_REASONS: dict[type[errors.SandboxError], str] = {
    errors.SandboxFileNotFound: "does not exist",
    errors.SandboxFileExists: "exists already; allow overwriting, or choose another name",
    errors.SandboxIsADirectory: "is a directory; name a file",
    errors.SandboxNotADirectory: "is not a directory, or one of its parents is not",
    errors.DirectoryNotEmpty: "is a directory with something in it; delete that recursively",
    errors.NameTooLong: "is too long; a path may have 4096 bytes, each name in it 255",
    errors.SymlinkLoop: "leads through too many symbolic links, or a loop of them",
    errors.NotRegularFile: "is not a regular file; only those are read and written",
    errors.WorkspaceFull: "does not fit: the workspace is full; delete something first",
    errors.PermissionDenied: "is closed to the sandbox's user; change its mode first",
    errors.PathNotAllowed: "is outside the workspace, or leads there; use a path beneath the workspace",
}


class Refused(Exception):
    """Why something is not done: words that follow `cannot read "x": it`."""

    def __init__(self, kind: type[errors.SandboxError], reason: str | None = None) -> None:
        super().__init__(_REASONS[kind] if reason is None else reason)
        self.kind = kind


def walk(node: Node) -> Iterator[Node]:
    """A node and all beneath it."""
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        if isinstance(here, Directory):
            stack += here.entries.values()


def listed(directory: Directory, prefix: str, recursive: bool, depth: int = 1) -> Iterator[FileEntry | None]:
    """Entries by name, a directory before what is in it. None: a directory that cannot be listed."""
    for base, node in sorted(directory.entries.items(), key=lambda item: raw(item[0])):
        name = base if prefix == "." else f"{prefix}/{base}"
        yield entry(name, node)
        if recursive and isinstance(node, Directory):
            if depth >= MAX_DEPTH or node.mode & 0o500 != 0o500:
                yield None
            else:
                yield from listed(node, name, True, depth + 1)


def entry(name: str, node: Node) -> FileEntry:
    kind, size = FileKind.DIRECTORY, 0
    if isinstance(node, File):
        kind, size = FileKind.FILE, len(node.content)
    elif isinstance(node, Link):
        kind, size = FileKind.SYMLINK, len(raw(node.target))
    return FileEntry(name, kind, size, node.mode, int(node.modified * 1000))


def raw(name: str) -> bytes:
    """A name as Linux has it: Python holds a byte that is not UTF-8 as a lone surrogate."""
    return name.encode("utf-8", "surrogateescape")

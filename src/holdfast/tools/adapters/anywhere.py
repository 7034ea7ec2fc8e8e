"""Files of a sandbox by absolute path, for frameworks that know no workspace.

In the workspace the guest reads and writes: a file is there as a whole, or not at all. Elsewhere a program of the
sandbox does it, with the rights that it has; a write that fails there may leave a part, and says that it failed.
"""

from __future__ import annotations

import posixpath

from ... import errors
from ...code.session import Session
from ...results import ExecResult

# Another kind than a file may never end, or never begin.
_READ = 'if [ -e "$1" ] && [ ! -f "$1" ] && [ ! -d "$1" ]; then echo "not a file" >&2; exit 1; fi; exec cat -- "$1"'
_WRITE = 'mkdir -p -- "${1%/*}/" && cat > "$1"'
_PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""none of the programs that an agent put into its PATH; and errors in English"""
_SAID: dict[str, type[errors.SandboxError]] = {
    "No such file or directory": errors.SandboxFileNotFound,
    "Is a directory": errors.SandboxIsADirectory,
    "Not a directory": errors.SandboxNotADirectory,
    "File exists": errors.SandboxNotADirectory,  # where a folder would have to be
    "not a file": errors.NotRegularFile,
    "Permission denied": errors.PermissionDenied,
    "Read-only file system": errors.PermissionDenied,
    "File name too long": errors.NameTooLong,
    "Too many levels of symbolic links": errors.SymlinkLoop,
    "No space left on device": errors.WorkspaceFull,
    "File too large": errors.FileTooLarge,
}


async def read(session: Session, path: str, *, max_bytes: int, user: str | None = None) -> bytes:
    """The contents of a file; as a user of the sandbox, where one is named.

    Raises:
        FileError: says what is in the way; FileTooLarge: it has more than `max_bytes`.
    """
    inside = _inside(session, path, user)
    too_large = errors.FileTooLarge(f"{errors.printable(path)[:200]} has more than {max_bytes} bytes")
    if inside is not None:
        data, truncated, _ = await session.read_part(inside, max_bytes=max_bytes)
        if truncated:
            raise too_large
        return data
    got = bytearray()

    def take(stream: str, data: bytes) -> None:
        if stream == "stdout":
            got.extend(data)
            if len(got) > max_bytes:
                raise too_large

    ended = await session.exec(["sh", "-c", _READ, "sh", path], env=_PLAIN, user=user, on_output=take)
    _require(path, ended)
    if len(got) != ended.stdout_total_bytes:
        raise errors.FileError(f"{errors.printable(path)[:200]}: only {len(got)} of its bytes came; try again")
    return bytes(got)


async def write(session: Session, path: str, content: bytes, *, user: str | None = None) -> None:
    """Write a file; missing folders are made, and an old file is replaced. As a user, where one is named.

    Raises:
        FileError: says what is in the way.
    """
    inside = _inside(session, path, user)
    if inside is not None:
        await session.write(inside, content)
    else:
        _require(path, await session.exec(["sh", "-c", _WRITE, "sh", path], env=_PLAIN, user=user, stdin=content))


def _inside(session: Session, path: str, user: str | None) -> str | None:
    """The path relative to the workspace, if it is in there and the guest may do what was asked for."""
    if not path.startswith("/"):
        raise errors.PathNotAllowed(f"{errors.printable(path)[:200]} is not an absolute path")
    workspace = session.effective.workspace
    normal = posixpath.normpath(path)
    return posixpath.relpath(normal, workspace) if not user and normal.startswith(f"{workspace}/") else None


def _require(path: str, ended: ExecResult) -> None:
    if ended.ok:
        return
    said = errors.printable(ended.stderr.strip())[-200:] or ended.end_cause.value
    kind = next((kind for words, kind in _SAID.items() if words in said), errors.FileError)
    raise kind(f"{errors.printable(path)[:200]}: {said}")

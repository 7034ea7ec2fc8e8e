"""What goes into a run: the code and the files, checked before anything is made."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping

from .. import errors
from ..config import Limits
from ..guest.command import encoded


def checked_files(
    script: str, code: str, files: Mapping[str, str | bytes], limits: Limits, workspace: str
) -> dict[str, bytes]:
    """The code under the name `script`, and the files, as bytes.

    Raises:
        InvalidRequest: no code, or a file that would take the code's place or another file's.
        PathNotAllowed: a file outside the working directory.
        FileTooLarge, TooManyFiles: over the limits.
    """
    if not code.strip():
        raise errors.InvalidRequest("there is no code to run")
    if limits.max_files is not None and len(files) >= limits.max_files:
        raise errors.TooManyFiles(f"{len(files)} files are too many; the limit is {limits.max_files - 1}")
    out = {script: encoded(code)}
    for path, content in files.items():
        name = _normal(path, workspace)
        if name == script:
            raise errors.InvalidRequest(f"the code itself is written to {script}; give your file another name")
        if name in out:
            raise errors.InvalidRequest(f"{path} is given twice, under two spellings")
        out[name] = encoded(content) if isinstance(content, str) else content
    for name, data in out.items():
        if limits.max_file_size_bytes is not None and len(data) > limits.max_file_size_bytes:
            what = "the code" if name == script else name
            raise errors.FileTooLarge(f"{what} has {len(data)} bytes; the limit is {limits.max_file_size_bytes}")
    return out


def checked_stage(stage: Mapping[str, str], taken: Collection[str], workspace: str) -> dict[str, str]:
    """Where staged files go, each in one spelling -> its key.

    Raises:
        InvalidRequest: two files of one name.
        PathNotAllowed: a file outside the working directory.
    """
    out: dict[str, str] = {}
    for path, key in stage.items():
        name = _normal(path, workspace)
        if name in taken or name in out:
            raise errors.InvalidRequest(f"{path} is given twice; give the staged file another name")
        out[name] = key
    return out


def _normal(path: str, workspace: str) -> str:
    """One spelling, relative to the working directory. The guest checks again, with the kernel's help."""
    whole = posixpath.normpath(posixpath.join(workspace, path))
    name = posixpath.relpath("/" + whole.lstrip("/"), workspace)
    if name == "." or path.endswith("/"):
        raise errors.SandboxIsADirectory(f"{path!r} names a folder; give a file's path")
    if name.startswith("../") or name == "..":
        raise errors.PathNotAllowed(f"{path} is outside {workspace}; give a path beneath it")
    return name

"""What happened in a sandbox, in the words of Inspect's contract for sandboxes: which error, and which result."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)

from ... import errors, results
from ...results import EndCause

_CODES: dict[type[errors.FileError], int] = {
    errors.SandboxFileNotFound: errno.ENOENT,
    errors.SandboxIsADirectory: errno.EISDIR,
    errors.SandboxNotADirectory: errno.ENOTDIR,
    errors.PermissionDenied: errno.EACCES,
    errors.PathNotAllowed: errno.EACCES,
    errors.NameTooLong: errno.ENAMETOOLONG,
    errors.SymlinkLoop: errno.ELOOP,
    errors.WorkspaceFull: errno.ENOSPC,
    errors.FileTooLarge: errno.EFBIG,
}
_NOT_THE_COMMAND = (errors.SessionError, errors.EngineError, errors.TooManyExecs)


@contextmanager
def unavailable() -> Iterator[None]:
    """The sandbox could not run it: that is no result, which a model would take for the program's own."""
    try:
        yield
    except errors.UserNotAvailable as error:
        raise SandboxUserUnsupportedError(str(error)) from error
    except _NOT_THE_COMMAND as error:
        raise SandboxUnavailableError(str(error)) from error


def not_started(error: errors.SandboxError) -> ExecResult[str]:
    """A command that could not be started, as its caller can mend it: a result, as a shell has it."""
    return ExecResult(False, 127 if isinstance(error, errors.CommandNotFound) else 126, "", str(error))


def require_own_end(ended: results.ExecResult) -> None:
    """Only what a program did itself is a result.

    Raises:
        SandboxUnavailableError: nobody knows how it ended.
        TimeoutError: its time was over; with what it wrote until then.
    """
    if ended.end_cause is EndCause.LOST:
        raise SandboxUnavailableError("the sandbox went away while it ran the command; nobody knows how that ended")
    if ended.end_cause is EndCause.TIMEOUT:
        late = TimeoutError(f"killed after {ended.duration_ms / 1000:.0f} s, with all that it had started")
        vars(late)["truncated_output"] = ended.stdout + ended.stderr  # where Inspect looks for it
        raise late


def result(ended: results.ExecResult) -> ExecResult[str]:
    require_own_end(ended)
    if ended.truncated:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, ended.stdout + ended.stderr)
    code = 128 + (ended.signal or 9) if ended.exit_code is None else ended.exit_code  # as a shell has it
    return ExecResult(ended.ok, code, ended.stdout, ended.stderr)


@contextmanager
def of_files(file: str) -> Iterator[None]:
    """What is wrong with a file, as the error that Python itself would have raised."""
    try:
        yield
    except errors.FileError as error:
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
        if code is None:
            raise OSError(errno.EINVAL, str(error), file) from error
        raise OSError(code, os.strerror(code), file) from error

"""Every error that Holdfast raises. A program that fails is a result; an error means that we could not run it.

    SandboxError
      InvalidRequest (ValueError)        what was asked for makes no sense: empty code, NUL in an argument …
      ConfigError (ValueError)           a prompt file or a setting is wrong; knows file, line, column and key
      PolicyError                        the operator does not allow it
        ImageNotAllowed                  the operator does not allow this image
      EngineError                        our side failed
        EngineUnavailable                no engine can do it here; says how to get one
        EngineFailed                     the engine itself reported a failure
        ImageNotFound                    the image is not there and cannot be pulled
          RegistryUnreachable            because its registry does not answer
        PackagesFailed                   a package could not be installed
        GuestMissing                     the guest program is not in this installation
        ProtocolError                    the guest said something that it must not say
          ProtocolMismatch               it speaks another version
        LimitsNotAvailable               a limit cannot be put on a program, so none was started
      SessionError
        SessionNotFound                  no session has this key
        SessionClosed                    it was closed, or its time was over
        SessionLost                      the connection broke, and nobody knows what became of the call
      ExecError                          a program could not be started or reached
        CommandNotFound  NotExecutable  CwdNotFound  CwdNotADirectory  ArgumentTooLong  UserUnknown
        UserNotAvailable  ExecNotFound  StdinClosed  TooManyExecs
      FileError (OSError)                the builtins where there is one, so `except FileNotFoundError` works
        SandboxFileNotFound  SandboxFileExists  SandboxIsADirectory  SandboxNotADirectory  NotRegularFile
        DirectoryNotEmpty  PathNotAllowed  PermissionDenied  NameTooLong  SymlinkLoop  FileTooLarge
        TooManyFiles  WorkspaceFull
      StagingError                       the object store through which large files come and go
        StagingUnavailable               it is not configured, does not answer, or does not let us in
        StagingDenied                    it does not allow us this
        StagingLost                      it went away or stalled in the middle
        StagingFull                      it has no room
        StagedFileNotFound               no file has this key
        StagedFileDamaged                pieces are missing, or it is not what its digest or size says
        StagedFileIsLink                 it points to another one; links are not followed
        StagedFileChanged                it was replaced meanwhile

Each has a `code`, which tools and `--json` show, and a message of one sentence that says what to do. Tools show a
`reason` too where one of the three applies that agents may know from elsewhere:

    CONTAINER_START_FAILED               EngineError, ImageNotAllowed: there is no sandbox, or none as it was asked for
    EXEC_FAILED                          ExecError, SessionLost, ProtocolError: nobody knows how the program ended
    COMMAND_TIMEOUT                      no error but a result: the program was killed when its time was over
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


class SandboxError(Exception):
    """Base of all errors of Holdfast."""

    code: ClassVar[str] = "sandbox_error"
    reason: ClassVar[str | None] = None
    """CONTAINER_START_FAILED or EXEC_FAILED"""

    @property
    def message(self) -> str:
        return str(self)

    def as_tool(self) -> dict[str, Any]:
        """The error as a tool gives it to a model."""
        text = "\n".join(printable(line) for line in self.message.splitlines())
        told: dict[str, Any] = {"ok": False, "error": text, "error_code": self.code}
        return told | ({"reason": self.reason} if self.reason else {})


class InvalidRequest(SandboxError, ValueError):
    code = "invalid_request"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a prompt file or in the settings, and where."""

    text: str
    """what is wrong and what to write instead"""
    file: str | None = None
    line: int | None = None
    """the first is 1"""
    column: int | None = None
    key: str | None = None
    """such as `sandbox.limits.memory_mb`, or the name of an environment variable"""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.key, self.text) if part)


class ConfigError(SandboxError, ValueError):
    """All mistakes of a file or of the settings, one to a line; `file`, `line`, `column` and `key` are the first's."""

    code = "config_error"

    def __init__(self, *mistakes: Mistake | str) -> None:
        super().__init__(*mistakes)
        self.mistakes = tuple(one if isinstance(one, Mistake) else Mistake(one) for one in mistakes)
        first = self.mistakes[0]
        self.file, self.line, self.column, self.key = first.file, first.line, first.column, first.key

    def __str__(self) -> str:
        return "\n".join(map(str, self.mistakes))


class PolicyError(SandboxError):
    code = "policy_error"


class ImageNotAllowed(PolicyError):
    code = "image_not_allowed"
    reason = "CONTAINER_START_FAILED"


class EngineError(SandboxError):
    code = "engine_error"
    reason = "CONTAINER_START_FAILED"


class EngineUnavailable(EngineError):
    code = "engine_unavailable"


class EngineFailed(EngineError):
    code = "engine_failed"


class ImageNotFound(EngineError):
    code = "image_not_found"


class RegistryUnreachable(ImageNotFound):
    code = "registry_unreachable"


class PackagesFailed(EngineError):
    code = "packages_failed"


class GuestMissing(EngineError):
    code = "guest_missing"


class ProtocolError(EngineError):
    code = "protocol_error"
    reason = "EXEC_FAILED"


class ProtocolMismatch(ProtocolError):
    code = "protocol_mismatch"


class LimitsNotAvailable(EngineError):
    code = "limits_not_available"


class SessionError(SandboxError):
    code = "session_error"


class SessionNotFound(SessionError):
    code = "session_not_found"


class SessionClosed(SessionError):
    code = "session_closed"


class SessionLost(SessionError):
    code = "session_lost"
    reason = "EXEC_FAILED"


class ExecError(SandboxError):
    code = "exec_error"
    reason = "EXEC_FAILED"


class CommandNotFound(ExecError):
    code = "command_not_found"


class NotExecutable(ExecError):
    code = "not_executable"


class CwdNotFound(ExecError):
    code = "cwd_not_found"


class CwdNotADirectory(ExecError):
    code = "cwd_not_a_directory"


class ArgumentTooLong(ExecError):
    code = "argument_too_long"


class UserUnknown(ExecError):
    code = "user_unknown"


class UserNotAvailable(ExecError):
    code = "user_not_available"


class ExecNotFound(ExecError):
    code = "exec_not_found"


class StdinClosed(ExecError):
    code = "stdin_closed"


class TooManyExecs(ExecError):
    code = "too_many_execs"


class FileError(SandboxError, OSError):
    code = "file_error"


class SandboxFileNotFound(FileError, FileNotFoundError):
    code = "not_found"


class SandboxFileExists(FileError, FileExistsError):
    code = "already_exists"


class SandboxIsADirectory(FileError, IsADirectoryError):
    code = "is_a_directory"


class SandboxNotADirectory(FileError, NotADirectoryError):
    code = "not_a_directory"


class NotRegularFile(FileError):
    code = "not_regular_file"


class DirectoryNotEmpty(FileError):
    code = "directory_not_empty"


class PathNotAllowed(FileError, PermissionError):
    code = "path_not_allowed"


class PermissionDenied(FileError, PermissionError):
    code = "permission_denied"


class NameTooLong(FileError):
    code = "name_too_long"


class SymlinkLoop(FileError):
    code = "symlink_loop"


class FileTooLarge(FileError):
    code = "file_too_large"


class TooManyFiles(FileError):
    code = "too_many_files"


class WorkspaceFull(FileError):
    code = "workspace_full"


class StagingError(SandboxError):
    code = "staging_error"


class StagingUnavailable(StagingError):
    code = "staging_unavailable"


class StagingDenied(StagingError):
    code = "staging_denied"


class StagingLost(StagingError):
    code = "staging_lost"


class StagingFull(StagingError):
    code = "staging_full"


class StagedFileNotFound(StagingError, FileNotFoundError):
    code = "staged_file_not_found"


class StagedFileDamaged(StagingError):
    code = "staged_file_damaged"


class StagedFileIsLink(StagingError):
    code = "staged_file_is_link"


class StagedFileChanged(StagingError):
    code = "staged_file_changed"


def _tree(root: type[SandboxError]) -> list[type[SandboxError]]:
    return [root, *(found for child in root.__subclasses__() for found in _tree(child))]


_BY_CODE = {kind.code: kind for kind in _tree(SandboxError)} | {
    "shutting_down": SessionClosed,
    "internal": EngineFailed,
}


def from_code(code: str, message: str) -> SandboxError:
    """The exception for a code that the guest sent."""
    return _BY_CODE.get(code, EngineFailed)(printable(message))


def printable(text: str) -> str:
    """Without control characters: what comes from a sandbox must not drive somebody's terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)

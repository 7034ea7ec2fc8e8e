"""Every error that Holdfast raises. A program that fails is a result; an error means that we could not run it.

    SandboxError
      InvalidRequest (ValueError)        what was asked for makes no sense: empty code, NUL in an argument …
      ConfigError (ValueError)           a prompt file or a setting is wrong; knows file, line and key
      PolicyError                        the operator does not allow it
      EngineError                        our side failed
        EngineUnavailable                no engine can do it here; says how to get one
        EngineFailed                     the engine itself reported a failure
        ImageNotAllowed                  the operator does not allow this image
        ImageNotFound                    the image is not there and cannot be pulled
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

Each has a `code`, which tools and `--json` show, and a message of one sentence that says what to do.
"""

from __future__ import annotations

from typing import ClassVar


class SandboxError(Exception):
    """Base of all errors of Holdfast."""

    code: ClassVar[str] = "sandbox_error"

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequest(SandboxError, ValueError):
    code = "invalid_request"


class ConfigError(SandboxError, ValueError):
    code = "config_error"


class PolicyError(SandboxError):
    code = "policy_error"


class EngineError(SandboxError):
    code = "engine_error"


class EngineUnavailable(EngineError):
    code = "engine_unavailable"


class EngineFailed(EngineError):
    code = "engine_failed"


class ImageNotAllowed(EngineError):
    code = "image_not_allowed"


class ImageNotFound(EngineError):
    code = "image_not_found"


class GuestMissing(EngineError):
    code = "guest_missing"


class ProtocolError(EngineError):
    code = "protocol_error"


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


class ExecError(SandboxError):
    code = "exec_error"


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

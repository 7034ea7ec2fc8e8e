"""A deepagents backend: `create_deep_agent(model, backend=Backend(box))` works in one of our sessions.

The session is one of `holdfast.open_session`: an agent may be called with `invoke` and with `ainvoke`, from one event
loop after another, and its session lives in the one loop of `holdfast.sync` all the while.

Nothing is raised into the agent's loop. What we could not do is an `error`, or output with the exit code 125; a command
that was killed because its time was over has 124, one that a signal ended 128 and more, as with `holdfast run`. Such a
note is a line of JSON: deepagents' own file tools read the output of programs, and find it there.
"""

from __future__ import annotations

import json
from copy import copy
from functools import partial

from ... import errors
from ...results import EndCause, ExecResult, Output
from ...sync import Session, awaited, wait_for
from ..tool import failure
from . import anywhere, brought_by

with brought_by("deepagents"):
    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileOperationError,
        FileUploadResponse,
        GrepResult,
    )
    from deepagents.backends.sandbox import BaseSandbox

_FAILED, _TIMED_OUT, _BY_SIGNAL = 125, 124, 128
_THEIR_WORDS: dict[type[errors.SandboxError], FileOperationError] = {
    errors.SandboxFileNotFound: "file_not_found",
    errors.SandboxIsADirectory: "is_directory",
    errors.PermissionDenied: "permission_denied",
    errors.PathNotAllowed: "invalid_path",
    errors.SandboxNotADirectory: "invalid_path",
    errors.NameTooLong: "invalid_path",
    errors.SymlinkLoop: "invalid_path",
    errors.NotRegularFile: "invalid_path",
}


class Backend(BaseSandbox):
    """Commands and files of one session. Whoever opened the session closes it.

    Args:
        timeout: seconds for a command that names none; None: as the operator's settings say.
        max_output_bytes: of one command; stdout and stderr together, in the order in which they were written.
        max_file_bytes: of one file that is downloaded.
    """

    def __init__(
        self,
        session: Session,
        *,
        timeout: float | None = None,
        max_output_bytes: int = 1 << 20,
        max_file_bytes: int = 64 << 20,
    ) -> None:
        if not isinstance(session, Session):
            raise errors.InvalidRequest("a backend takes a session of holdfast.open_session, also in async programs")
        self._session = session.asynchronous
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._max_file_bytes = max_file_bytes
        self._cuts = True

    @property
    def id(self) -> str:
        return self._session.key.sandbox_name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return wait_for(partial(self._execute, command, timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`. Cancelling it kills the command, with all that it started."""
        return await awaited(partial(self._execute, command, timeout))

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None) -> GrepResult:
        """What does not fit is an error: matches have no place for a note that some are missing."""
        return BaseSandbox.grep(self._whole(), pattern, path, glob)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None) -> GrepResult:
        return await BaseSandbox.agrep(self._whole(), pattern, path, glob)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return wait_for(partial(self._upload, files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return await awaited(partial(self._upload, files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return wait_for(partial(self._download, paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return await awaited(partial(self._download, paths))

    def _whole(self) -> Backend:
        """This backend, for commands whose output is of use as a whole only."""
        whole = copy(self)
        whole._cuts = False
        return whole

    # --- in the loop of the session

    async def _execute(self, command: str, timeout: int | None) -> ExecuteResponse:
        try:
            ended = await self._session.exec(
                f"exec 2>&1\n{command}",
                timeout=timeout or self._timeout,  # 0 is theirs for "no limit", which nobody gets
                max_stdout_bytes=self._max_output_bytes,
            )
        except errors.SandboxError as error:
            return ExecuteResponse(json.dumps(failure(error)), _FAILED)
        if ended.truncated and not self._cuts:
            return ExecuteResponse(f"more than {self._max_output_bytes} bytes; ask for less", _FAILED, truncated=True)
        return _response(ended)

    async def _upload(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        answers = []
        for path, content in files:
            try:
                await anywhere.write(self._session, path, content)
                answers.append(FileUploadResponse(path))
            except errors.SandboxError as error:
                answers.append(FileUploadResponse(path, _in_their_words(error)))
        return answers

    async def _download(self, paths: list[str]) -> list[FileDownloadResponse]:
        answers = []
        for path in paths:
            try:
                content = await anywhere.read(self._session, path, max_bytes=self._max_file_bytes)
                answers.append(FileDownloadResponse(path, content))
            except errors.SandboxError as error:
                answers.append(FileDownloadResponse(path, None, _in_their_words(error)))
        return answers


def _in_their_words(error: errors.SandboxError) -> FileOperationError | str:
    return _THEIR_WORDS.get(type(error), str(error))


def _response(ended: ExecResult) -> ExecuteResponse:
    output = _text(ended.stdout_output)
    if ended.end_cause is EndCause.TIMEOUT:
        spent = f"its time was over after {ended.duration_ms / 1000:.0f} s, and it was killed with all that it started"
        return ExecuteResponse(_with(output, spent, "COMMAND_TIMEOUT"), _TIMED_OUT, ended.truncated)
    if ended.exit_code is None:
        code = _FAILED if ended.signal is None else _BY_SIGNAL + ended.signal
        why = f"it ended by {ended.end_cause.value}" + (f", signal {ended.signal}" if ended.signal else "")
        return ExecuteResponse(_with(output, why, ended.end_cause.value), code, ended.truncated)
    if ended.left_processes:
        output = f"{output}\n[left running, and killed: {errors.printable(', '.join(ended.left_processes))}]"
    return ExecuteResponse(output, ended.exit_code, ended.truncated)


def _text(found: Output) -> str:
    if not found.truncated:
        return found.text
    head, tail = found.head.decode("utf-8", "replace"), found.tail.decode("utf-8", "replace")
    missing = found.total_bytes - len(found.kept)
    return _with(head, f"here {missing} bytes of output are missing", "output_truncated") + f"\n{tail}"


def _with(output: str, error: str, code: str) -> str:
    return f"{output}\n{json.dumps({'error': error, 'error_code': code})}"

"""One of our sessions, as the sandbox of the OpenAI Agents SDK sees it. `openai_agents_sandbox` makes them."""

from __future__ import annotations

import io
import json
import shlex
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from agents.sandbox import (
    ExecResult,
    ExecTimeoutError,
    ExecTransportError,
    User,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import BaseSandboxSession, SandboxSessionState
from agents.sandbox.session.pty_types import PtyExecUpdate

from ... import errors
from ...code.session import Session
from ...config import settings
from ...results import EndCause
from ...results import ExecResult as Ended
from ...sync import awaited
from .. import shown
from ..tool import failure
from . import anywhere
from .openai_agents_programs import FAILED, Programs, told

_TOLD_BYTES = 1 << 20
"""of each stream of a command that a model asked for"""
_KEPT_BYTES = 16 << 20
"""of each stream of a program that the SDK started for itself; more is an error"""
_YIELD_SECONDS, _POLL_SECONDS = 10.0, 0.25
"""as with the SDK's own sandboxes"""
_FILE_BYTES = 256 << 20
_ARCHIVE_BYTES = 4 << 30
_IN_MEMORY_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126

_T = TypeVar("_T")


class HoldfastSession(BaseSandboxSession):
    """Commands and files of one session. Errors are the SDK's own kinds, with ours as their cause."""

    def __init__(
        self, state: SandboxSessionState, session: Session, opened: AbstractAsyncContextManager[Session] | None
    ) -> None:
        self.state = state
        self._session = session
        self._opened = opened
        self._programs = Programs(session)
        self._set_start_state_preserved(not session.created)
        if session.created:
            state.workspace_root_ready = False

    async def end(self) -> None:
        await self._release()
        await self._session.close()

    async def _release(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)

    async def _shutdown_backend(self) -> None:
        await awaited(self._release)

    async def running(self) -> bool:
        try:
            await awaited(self._session.status)
        except errors.SandboxError:
            return False
        return True

    # --- programs

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """As the SDK's contract has it. What a model asked for comes in a shell, and is cut where it is too much."""
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(words, timeout, _name(user), cut=bool(shell))

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(word) for word in command], timeout, None, cut=False)

    async def _run(self, words: list[str], timeout: float | None, user: str | None, *, cut: bool) -> ExecResult:
        most = _TOLD_BYTES if cut else _KEPT_BYTES
        try:
            ended = await awaited(
                partial(
                    self._session.exec,
                    words,
                    timeout=timeout,
                    user=user,
                    max_stdout_bytes=most,
                    max_stderr_bytes=most,
                )
            )
        except errors.CommandNotFound as error:
            return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=_NOT_FOUND)
        except errors.NotExecutable as error:
            return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=_NOT_EXECUTABLE)
        except errors.SandboxError as error:
            if cut:  # an exception would end the agent's run
                return ExecResult(stdout=b"", stderr=json.dumps(failure(error)).encode(), exit_code=FAILED)
            raise ExecTransportError(command=words, cause=error, message=str(error)) from error
        return _told(ended, words, timeout, cut)

    # --- programs that go on meanwhile

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        seconds = _YIELD_SECONDS if yield_time_s is None else yield_time_s
        return await awaited(partial(self._programs.start, words, _name(user), tty, seconds, max_output_tokens))

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        seconds = _POLL_SECONDS if yield_time_s is None else yield_time_s
        return await awaited(partial(self._programs.write, session_id, chars, seconds, max_output_tokens))

    async def pty_terminate_all(self) -> None:
        await awaited(self._programs.end_all)

    # --- files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        at = (await self._validate_path_access(path)).as_posix()
        work = partial(anywhere.read, self._session, at, max_bytes=_FILE_BYTES, user=_name(user))
        return io.BytesIO(await self._reading(path, work))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        at = (await self._validate_path_access(path)).as_posix()
        try:
            return await awaited(partial(self._session.read, at, max_bytes=max_bytes))
        except errors.PathNotAllowed:  # the manifest grants a path that is not in the workspace
            return await super()._read_bounded(path, max_bytes=max_bytes)

    async def _reading(self, path: Path, work: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await awaited(work)
        except errors.SandboxFileNotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except errors.SandboxError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error, context=_context(error)) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        at = (await self._validate_path_access(path, for_write=True)).as_posix()
        content = cast("bytes | str", data.read())
        raw = content.encode() if isinstance(content, str) else bytes(content)
        await self._writing(path, partial(anywhere.write, self._session, at, raw, user=_name(user)))

    async def _writing(self, path: Path, work: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await awaited(work)
        except errors.SandboxError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error, context=_context(error)) from error

    # --- the workspace as a whole

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar, without what the manifest says must not be kept."""
        left_out = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        root = self._workspace_root_path()
        archive = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115  # whoever gets it closes it

        def keep(stream: str, piece: bytes) -> None:
            if stream == "stdout":
                archive.write(piece)
                if archive.tell() > _ARCHIVE_BYTES:
                    raise errors.FileTooLarge(f"the workspace has more than {_ARCHIVE_BYTES} bytes")

        words = ["tar", "-C", root.as_posix(), "--no-wildcards", *left_out, "-cf", "-", "."]
        try:
            await self._reading(root, partial(self._tar, words, on_output=keep))
        except BaseException:
            archive.close()
            raise
        archive.seek(0)
        return cast(io.IOBase, archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacked by a program of the sandbox: whatever the archive says, it stays in there."""
        root = self._workspace_root_path()
        words = ["tar", "-C", root.as_posix(), "--no-same-owner", "-xf", "-"]
        await self._writing(root, partial(self._tar, words, stdin=_pieces(data)))

    async def _tar(self, words: list[str], **options: Any) -> None:
        ended = await self._session.exec(words, timeout=settings().max_timeout, **options)
        if not ended.ok:
            said = errors.printable(ended.stderr.strip())[-500:] or ended.end_cause.value
            raise errors.FileError(f"{shlex.join(words)}: {said}")


def _told(ended: Ended, words: list[str], timeout: float | None, cut: bool) -> ExecResult:
    if ended.end_cause is EndCause.TIMEOUT:
        spent = timeout if timeout is not None else ended.duration_ms / 1000
        raise ExecTimeoutError(command=words, timeout_s=spent)
    code, note = told(ended)
    if code == FAILED and ended.exit_code is None and not cut:
        raise ExecTransportError(command=words, message=f"the command ended by {ended.end_cause.value}")
    if ended.truncated and not cut:
        raise ExecTransportError(command=words, message=f"the command wrote more than {_KEPT_BYTES} bytes")
    stdout, stderr = (
        shown.output(one).encode() if one.truncated else one.kept for one in (ended.stdout_output, ended.stderr_output)
    )
    return ExecResult(stdout=stdout, stderr=stderr + note.encode(), exit_code=code)


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user


def _context(error: errors.SandboxError) -> dict[str, object]:
    return {"reason": error.code, "message": str(error)}


async def _pieces(data: io.IOBase) -> AsyncIterator[bytes]:
    while piece := cast("bytes | str", data.read(_PIECE_BYTES)):
        yield piece.encode() if isinstance(piece, str) else bytes(piece)

"""A session, as its user holds it: run programs in it, move files in and out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import anyio

from .. import errors
from ..abc import Effective, Engine, SandboxRecord
from ..config import Settings
from ..guest.client import GuestClient, OnOutput, Source
from ..guest.command import Command, encoded
from ..guest.connection import Connection
from ..guest.protocol import Background, ExecInfo, StatusReport
from ..results import ExecResult, FileEntry, Listing, OutputRead
from .keys import Namespace, SessionKey

Words = str | Sequence[str]
"""A command: a string is a line for `sh -c`, a list is a program and its arguments."""
_UPLOAD_BYTES = 1 << 20


class Session:
    """One persistent sandbox. Get it from `open_session`; leaving `async with` ends a private session and lets go of
    a shared one, which lives on until its workflow ends, its time is over, or somebody calls `close`."""

    def __init__(
        self,
        key: SessionKey,
        engine: Engine,
        record: SandboxRecord,
        created: bool,
        changed: bool,
        settings: Settings,
    ) -> None:
        self.key = key
        self.created = created
        """True: this call made it; False: it was there and is shared"""
        self.changed = changed
        """True: it was there, with another runtime or other limits than this call asked for; see `effective`"""
        self._engine = engine
        self._record = record
        self._settings = settings
        self._client: GuestClient | None = None
        self._connecting = anyio.Lock()
        self._closed = False

    @property
    def effective(self) -> Effective:
        """Engine, runtime, limits and network as they really are."""
        return self._record.effective

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if self.key.namespace is Namespace.PRIVATE:
                await self.close()
            else:
                await self.release()

    async def guest(self) -> GuestClient:
        """The connection to the guest; made at the first use, and again after it broke.

        Raises:
            SessionClosed: this session was closed.
            SessionNotFound: it has ended.
        """
        if self._closed:
            raise errors.SessionClosed(f"the session {self.key} is closed; open it again")
        client = self._client
        if client is not None and not client.connection.lost:
            return client
        async with self._connecting:
            if self._client is None or self._client.connection.lost:
                self._client = GuestClient(await Connection.open(await self._engine.dial(self._record)))
            return self._client

    async def release(self) -> None:
        """Let go of the session without ending it."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def close(self) -> None:
        """End the session for everybody and remove it. Closing again is fine."""
        self._closed = True
        await self.release()
        await self._engine.destroy(self._record)

    # --- programs

    async def exec(
        self,
        command: Words,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Source | str | None = None,
        user: str | None = None,
        on_output: OnOutput | None = None,
        max_stdout_bytes: int | None = None,
        max_stderr_bytes: int | None = None,
    ) -> ExecResult:
        """Run a program to its end. A string runs in `sh -c`, a list runs as it is.

        Whatever the program leaves running is killed with it; cancelling the call kills it too.
        """
        data = encoded(stdin) if isinstance(stdin, str) else stdin
        asked = self._command(command, timeout, cwd, env, user, max_stdout_bytes, max_stderr_bytes)
        return await (await self.guest()).exec(asked, data, on_output)

    async def start(
        self,
        command: Words,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bool = False,
        keep_background: bool = False,
        max_stdout_bytes: int | None = None,
        max_stderr_bytes: int | None = None,
    ) -> Process:
        """Start a program that goes on without this call, and without this client."""
        asked = self._command(command, timeout, cwd, env, user, max_stdout_bytes, max_stderr_bytes, keep_background)
        return Process(self, await (await self.guest()).start(asked, stdin))

    def process(self, exec_id: str) -> Process:
        """A program that was started before, maybe by another client."""
        return Process(self, exec_id)

    async def processes(self) -> Sequence[ExecInfo]:
        """The programs of this session, running ones and the last that ended."""
        return await (await self.guest()).list_execs()

    def _command(
        self,
        command: Words,
        timeout: float | None,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
        max_stdout_bytes: int | None,
        max_stderr_bytes: int | None,
        keep: bool = False,
    ) -> Command:
        return Command(
            argv=None if isinstance(command, str) else tuple(command),
            shell=command if isinstance(command, str) else None,
            cwd=cwd,
            env=dict(env or {}),
            user=user,
            timeout=self._settings.default_timeout if timeout is None else timeout,
            stdout_cap_bytes=self._settings.max_stdout_bytes if max_stdout_bytes is None else max_stdout_bytes,
            stderr_cap_bytes=self._settings.max_stderr_bytes if max_stderr_bytes is None else max_stderr_bytes,
            background=Background.KEEP if keep else Background.KILL,
        )

    # --- files

    async def write(
        self, path: str, content: str | bytes, *, mode: int | None = None, overwrite: bool = True
    ) -> FileEntry:
        """Write a file: all of it or nothing. Missing folders are made."""
        data = encoded(content) if isinstance(content, str) else content
        return await (await self.guest()).write_file(path, data, mode, overwrite)

    async def read(self, path: str, *, offset: int = 0, max_bytes: int | None = None) -> bytes:
        """The contents of a file, from `offset`, at most `max_bytes` of them."""
        return (await (await self.guest()).read_file(path, offset, max_bytes))[0]

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def list(self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000) -> Listing:
        return await (await self.guest()).list_files(path, recursive, max_entries)

    async def stat(self, path: str) -> FileEntry:
        return await (await self.guest()).stat(path)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await (await self.guest()).delete(path, recursive)

    async def mkdir(self, path: str) -> FileEntry:
        return await (await self.guest()).mkdir(path)

    async def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileEntry:
        return await (await self.guest()).move(source, destination, overwrite)

    async def upload(self, source: str | Path, path: str, *, mode: int | None = None) -> FileEntry:
        """Copy a file of the host into the workspace, in pieces: its size does not matter."""

        async def pieces() -> AsyncIterator[bytes]:
            async with await anyio.open_file(source, "rb") as file:
                while piece := await file.read(_UPLOAD_BYTES):
                    yield piece

        return await (await self.guest()).write_file(path, pieces(), mode)

    async def download(self, path: str, target: str | Path) -> int:
        """Copy a file of the workspace to the host; it appears when it is complete. Returns its size."""
        part = anyio.Path(f"{target}.{secrets.token_hex(4)}.part")
        try:
            async with await part.open("wb") as file:
                # Straight to the file: the operating system's buffer takes it faster than a thread would.
                await (await self.guest()).read_file_into(path, file.wrapped.write)
                size = await file.tell()
            await part.replace(target)
        finally:
            with anyio.CancelScope(shield=True):
                await part.unlink(missing_ok=True)
        return size

    async def status(self) -> StatusReport:
        """How long it has been up and idle, what runs, how full the workspace is."""
        return await (await self.guest()).status()


class Process:
    """A started program. It belongs to the session, not to this client."""

    def __init__(self, session: Session, exec_id: str) -> None:
        self._session = session
        self.id = exec_id

    async def read(self, since: int = 0, *, wait: float = 0) -> OutputRead:
        """What it wrote after `since`; waits up to `wait` seconds for something new."""
        return await (await self._session.guest()).read(self.id, since, wait=wait)

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Its result.

        Raises:
            TimeoutError: it still runs after `timeout` seconds; it goes on.
        """
        result = await (await self._session.guest()).wait(self.id, timeout)
        if result is None:
            raise TimeoutError(f"{self.id} still runs after {timeout} s")
        return result

    async def kill(self, signal: int = 9) -> None:
        """End it with all that it started (SIGKILL), or send another signal to each of its processes."""
        await (await self._session.guest()).kill(self.id, signal)

    async def write_stdin(self, data: str | bytes, *, close: bool = False) -> None:
        raw = encoded(data) if isinstance(data, str) else data
        await (await self._session.guest()).write_stdin(self.id, raw, close)

"""A session, as its user holds it: run programs in it, move files in and out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import anyio

from .. import errors, policy, telemetry
from ..abc import Effective, Engine, SandboxRecord
from ..config import Settings
from ..guest.client import GuestClient, OnOutput, Source
from ..guest.command import Command, encoded
from ..guest.connection import Connection
from ..guest.protocol import Background, ExecInfo, StatusReport
from ..results import ExecResult, FileEntry, Listing
from . import known, transfer
from .keys import Namespace, SessionKey
from .process import Process
from .transfer import MAX_FILES, Copied, OnTransfer

if TYPE_CHECKING:
    from ..staging.sessions import Staged

Words = str | Sequence[str]
"""A command: a string is a line for `sh -c`, a list is a program and its arguments."""


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
        self.workspace_lost = False
        """True: this process had another sandbox under this key, which it did not close, and all that was in it is
        gone: it died, was killed or removed, or its time was over"""
        self._engine = engine
        self.record = record
        self._settings = settings
        self._client: GuestClient | None = None
        self._connecting = anyio.Lock()
        self._closed = False

    @property
    def effective(self) -> Effective:
        """Engine, runtime, limits and network as they really are."""
        return self.record.effective

    @cached_property
    def about(self) -> dict[str, telemetry.Value]:
        """What spans and log events say of it."""
        found = self.record.effective
        return {
            "engine": found.engine,
            "runtime": found.runtime,
            "image": found.image,
            "sandbox_id": self.key.sandbox_name,
        }

    def span(self, operation: str) -> telemetry.Span:
        """A span around something that is done in it."""
        return telemetry.span(f"sandbox_{operation}", self.about)

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
        if client is not None and not client.connection.lost and not client.doubtful:
            return client
        async with self._connecting:
            if self._client is None or not await self._client.usable():
                self._client = GuestClient(await self._connect())
            return self._client

    async def _connect(self) -> Connection:
        stream = await self._engine.dial(self.record)
        try:
            return await Connection.open(stream)
        except errors.ProtocolMismatch:
            raise
        except (errors.ProtocolError, errors.SessionLost) as error:
            # The engine's own words where a guest was expected, or none at all: it may have ended just now.
            if await self._engine.find(self.record.name) is None:
                raise errors.SessionNotFound(
                    f"the session {self.key} has ended, and its workspace is gone; open it again"
                ) from error
            raise

    async def release(self) -> None:
        """Let go of the session without ending it."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def close(self, *, keep_for: float = 0) -> None:
        """End the session for everybody and remove it. Closing again is fine.

        Args:
            keep_for: seconds that it stays for somebody who wants to look: its programs are killed, its files can be
                read by whoever opens it, and then it goes by its own clock.
        """
        known.forget(self.record)
        if self._closed:
            await self._engine.destroy(self.record)
            return
        with self.span("close"):
            if keep_for <= 0 or not await self._retire(keep_for):
                self._closed = True
                await self.release()
                await self._engine.destroy(self.record)
            telemetry.count("sessions_closed", self.effective.runtime)
            telemetry.event("sandbox_session_closed", self.about)

    async def _retire(self, keep_for: float) -> bool:
        """False if it has nothing to be kept, or does not answer."""
        try:
            await (await self.guest()).retire(keep_for)
        except errors.SessionError:
            return False
        self._closed = True
        await self.release()
        return True

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
        with self.span("exec") as span:
            data = encoded(stdin) if isinstance(stdin, str) else stdin
            asked = self._command(command, timeout, cwd, env, user, max_stdout_bytes, max_stderr_bytes)
            span.set(timeout_seconds=asked.timeout)
            started = time.perf_counter()
            result: ExecResult | None = None
            try:
                result = await (await self.guest()).exec(asked, data, on_output)
            finally:
                self._ended(span, result, (time.perf_counter() - started) * 1000)
            return result

    def _ended(self, span: telemetry.Span, result: ExecResult | None, duration: float) -> None:
        ok = result is not None and result.ok
        telemetry.count("execs", self.effective.runtime, duration=("exec", duration), ok=ok)
        told: dict[str, telemetry.Value] = {"exit_code": None, "end_cause": "error"}
        if result is not None:
            span.ended(result)
            told = {"exec_id": result.exec_id, "exit_code": result.exit_code, "end_cause": result.end_cause.value}
            told |= {"stdout_bytes": result.stdout_total_bytes, "stderr_bytes": result.stderr_total_bytes}
        telemetry.event("sandbox_exec_finished", {**self.about, "duration_ms": duration, **told})

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
        with self.span("exec") as span:
            asked = self._command(command, timeout, cwd, env, user, max_stdout_bytes, max_stderr_bytes, keep_background)
            span.set(timeout_seconds=asked.timeout, status="running")
            exec_id = await (await self.guest()).start(asked, stdin)
            telemetry.event("sandbox_exec_started", {**self.about, "exec_id": exec_id})
        return Process(self, exec_id)

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
            timeout=policy.timeout(timeout, self._settings),
            stdout_cap_bytes=self._settings.max_stdout_bytes if max_stdout_bytes is None else max_stdout_bytes,
            stderr_cap_bytes=self._settings.max_stderr_bytes if max_stderr_bytes is None else max_stderr_bytes,
            background=Background.KEEP if keep else Background.KILL,
        )

    # --- files

    async def write(
        self, path: str, content: str | bytes, *, mode: int | None = None, overwrite: bool = True
    ) -> FileEntry:
        """Write a file: all of it or nothing. Missing folders are made."""
        with self.span("fs_write") as span:
            data = encoded(content) if isinstance(content, str) else content
            entry = await (await self.guest()).write_file(path, data, mode, overwrite)
            span.set(bytes=entry.size_bytes)
            return entry

    async def read(self, path: str, *, offset: int = 0, max_bytes: int | None = None) -> bytes:
        """The contents of a file, from `offset`, at most `max_bytes` of them."""
        return (await self.read_part(path, offset=offset, max_bytes=max_bytes))[0]

    async def read_part(self, path: str, *, offset: int = 0, max_bytes: int | None = None) -> tuple[bytes, bool, int]:
        """As `read`, with whether there is more after it, and the size of the whole file."""
        with self.span("fs_read") as span:
            data, more, size = await (await self.guest()).read_file(path, offset, max_bytes)
            span.set(bytes=len(data), truncated=more)
            return data, more, size

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def list(self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000) -> Listing:
        with self.span("fs_list") as span:
            listed = await (await self.guest()).list_files(path, recursive, max_entries)
            span.set(entries=len(listed), truncated=listed.truncated)
            return listed

    async def stat(self, path: str) -> FileEntry:
        with self.span("fs_stat"):
            return await (await self.guest()).stat(path)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        with self.span("fs_delete"):
            await (await self.guest()).delete(path, recursive)

    async def mkdir(self, path: str) -> FileEntry:
        with self.span("fs_mkdir"):
            return await (await self.guest()).mkdir(path)

    async def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileEntry:
        with self.span("fs_move"):
            return await (await self.guest()).move(source, destination, overwrite)

    async def upload(
        self,
        source: str | Path,
        path: str,
        *,
        mode: int | None = None,
        on_progress: OnTransfer | None = None,
        max_files: int = MAX_FILES,
    ) -> Copied:
        """Copy a file of this machine into the workspace, or a folder with all that is in it; in pieces, so that size
        does not matter. Permission bits are kept, unless `mode` is given. See `transfer` for the rules.

        Raises:
            TooManyFiles: the folder holds more than `max_files`; nothing was copied.
        """
        with self.span("fs_upload") as span:
            copied = await transfer.upload(await self.guest(), source, path, mode, on_progress, max_files)
            span.set(bytes=copied.size_bytes, entries=copied.files)
            return copied

    async def download(
        self,
        path: str,
        target: str | Path,
        *,
        on_progress: OnTransfer | None = None,
        max_files: int = MAX_FILES,
        max_bytes: int | None = None,
    ) -> Copied:
        """Copy a file of the workspace to this machine, or a folder with all that is in it. Nothing is written outside
        of the target, whatever the names inside are. See `transfer` for the rules.

        Args:
            max_bytes: the most that is copied; without it, what the workspace may hold. Files with holes may be larger.

        Raises:
            TooManyFiles: the folder holds more than `max_files`; so many were copied.
            FileTooLarge: there are more than `max_bytes`.
        """
        workspace_mb = self.effective.limits.get("workspace_mb")
        if max_bytes is None and workspace_mb is not None:
            max_bytes = workspace_mb << 20
        with self.span("fs_download") as span:
            copied = await transfer.download(await self.guest(), path, target, on_progress, max_files, max_bytes)
            span.set(bytes=copied.size_bytes, entries=copied.files)
            return copied

    # --- files of the object store, if one is configured

    async def stage(
        self,
        key: str,
        path: str,
        *,
        bucket: str | None = None,
        overwrite: bool = True,
        on_progress: OnTransfer | None = None,
    ) -> Staged:
        """Bring a file of the object store into the workspace: all of it, with the right digest, or nothing.

        Args:
            key: within the workflow's own files, or those of the agent whose session it is; `/KEY` is a whole key. The
                caller is trusted with all of them: it is the tools of agents that are bound to their workflow.

        Raises:
            StagingError: the store has no such file, or a damaged one, or does not answer.
            FileTooLarge, WorkspaceFull: it does not fit; nothing was read.
        """
        from ..staging import sessions
        from ..staging.reach import of_session
        from ..staging.store import open_store

        with self.span("stage_file"):
            async with open_store(self._settings) as store:
                reach = of_session(self._settings, self.key)
                return await sessions.stage(
                    self, store, reach, key, path, bucket=bucket, overwrite=overwrite, tell=on_progress
                )

    async def publish(
        self,
        path: str,
        key: str | None = None,
        *,
        bucket: str | None = None,
        on_progress: OnTransfer | None = None,
    ) -> Staged:
        """Put a file of the workspace into the object store, under `key` or else under its path. It replaces what has
        this key when all of it is there; a call that fails or is cancelled leaves nothing in the store."""
        from ..staging import sessions
        from ..staging.reach import of_session
        from ..staging.store import open_store

        with self.span("publish_file"):
            async with open_store(self._settings) as store:
                reach = of_session(self._settings, self.key)
                return await sessions.publish(self, store, reach, path, key, bucket=bucket, tell=on_progress)

    async def status(self) -> StatusReport:
        """How long it has been up and idle, what runs, how full the workspace is."""
        return await (await self.guest()).status()

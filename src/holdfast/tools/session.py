"""The tools of code mode: one session, kept while agents work in it, found again by its key."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio

from .. import asked as spelling
from .. import errors, policy
from ..code.manager import open_session
from ..code.session import Session
from ..config import SandboxConfig
from ..results import FileEntry, FileKind
from . import inputs, outputs, shown, staging
from .offer import Offer
from .tool import Result, Tool

_LISTED = 1000
_LISTED_BYTES = 64 << 10
"""of paths, each of which may have 4096"""
_READ_BYTES = 64 << 10
"""of output in one `sandbox_exec_read`"""
_KINDS = {FileKind.DIRECTORY: "dir"}
_USUAL = (None, "workflow", "default", "agent", "isolated")
_NOBODY = {"workflow": None, "agent": None, "session": None}


class CodeTools:
    """The nine tools, and the sessions that they opened."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        self._last: str | None = None
        self._opening = anyio.Lock()

    def tools(self) -> list[Tool]:
        workdir = self._offer.settings.code_workdir
        shared = self._offer.context.workflow_run_id and self._offer.config.session not in ("agent", "isolated")
        whose = "is shared by the agents of this workflow" if shared else "is yours alone"
        kept = f"stdout and stderr are cut after {self._offer.decision.max_stdout_bytes} bytes each"
        made: list[tuple[str, str, type[inputs.Input], Callable[[Any], Awaitable[Result]]]] = [
            (
                "sandbox_open",
                f"Get your sandbox ({self._offer.place}), a Linux machine that keeps its files in {workdir} between "
                f"calls and {whose}. Call it first. {self._offer.bounds} "
                "Example: {}",
                inputs.OpenInput,
                self._open,
            ),
            (
                "sandbox_exec",
                f"Run a command in the sandbox. Whatever it leaves running is killed when it ends; {kept}. "
                'Example: {"cmd": ["python3", "main.py"]} or {"command": "ls -la | head"}',
                inputs.ExecInput,
                self._exec,
            ),
            (
                "sandbox_exec_read",
                "What a command that was started with stream wrote since next_seq of the last read, up to 64 KB of it. "
                'Example: {"exec_id": "x1", "since_seq": 0}',
                inputs.ExecReadInput,
                self._exec_read,
            ),
            (
                "sandbox_exec_wait",
                'Wait for a command that was started with stream. Example: {"exec_id": "x1", "timeout_seconds": 60}',
                inputs.ExecWaitInput,
                self._exec_wait,
            ),
            (
                "sandbox_fs_write",
                "Write a file, whole or not at all; it replaces an old one. "
                'Example: {"path": "main.py", "contents": "print(1)\\n"}',
                inputs.FsWriteInput,
                self._write,
            ),
            (
                "sandbox_fs_read",
                'Read a file, up to 256 KB of it unless max_bytes says more. Example: {"path": "main.py"}',
                inputs.FsReadInput,
                self._read,
            ),
            (
                "sandbox_fs_list",
                f'List a folder, at most {_LISTED} entries. Example: {{"path": ".", "recursive": true}}',
                inputs.FsListInput,
                self._list,
            ),
            (
                "sandbox_fs_delete",
                'Delete a file, or a folder with recursive. Example: {"path": "build", "recursive": true}',
                inputs.FsDeleteInput,
                self._delete,
            ),
            (
                "sandbox_close",
                f"End the sandbox{' for everybody' if shared else ''}, with all its files. Not needed: it ends "
                f"with its {'workflow' if shared else 'agent'}. Example: {{}}",
                inputs.CloseInput,
                self._close,
            ),
        ]
        return [
            Tool(name, text, kind, outputs.CODE[name], handler, self._offer.masker, self._offer.context.attributes)
            for name, text, kind, handler in made
        ] + staging.tools(self._offer, self._session)

    async def aclose(self) -> None:
        """Let go of the sessions; private ones end."""
        for name in [*self._sessions]:
            await self._forget(name)

    # --- sessions

    def _key(self, name: str | None) -> dict[str, str | None]:
        context, asked = self._offer.context, name or self._offer.config.session
        agent = context.agent_run_id or context.agent_name
        if asked in _USUAL and not context.workflow_run_id:
            asked = "agent" if agent else None  # without a workflow there is nobody to share with
        return {"workflow": context.workflow_run_id, "agent": agent, "session": asked}

    async def _session(self, sandbox_id: str | None) -> Session:
        found = self._sessions.get(sandbox_id or self._last or "")
        if found is not None:
            return found[0]
        if sandbox_id is None:
            return await self._opened(None, None)
        known = ", ".join(self._sessions) or "none"
        raise errors.SessionNotFound(f"there is no sandbox {errors.printable(sandbox_id)[:80]}; open are: {known}")

    async def _opened(self, name: str | None, image: str | None) -> Session:
        offer, parts = self._offer, self._key(name)
        asked = offer.config if image is None else _with_image(offer.config, image)
        async with self._opening:
            if parts == _NOBODY and self._last and name is None:  # a private session has no key to be found by
                if await _usable(self._sessions[self._last][0]):
                    return self._sessions[self._last][0]
                await self._forget(self._last)
            stack = AsyncExitStack()
            session = await stack.enter_async_context(
                open_session(
                    workflow=parts["workflow"],
                    agent=parts["agent"],
                    session=parts["session"],
                    runtime=asked.runtime_name,
                    image=asked.image_name,
                    engine=offer.engine,
                    limits=offer.decision.request.limits,
                    network=asked.wants_network,
                )
            )
            if session.key.sandbox_name in self._sessions:
                await self._forget(session.key.sandbox_name)
            self._sessions[session.key.sandbox_name] = (session, stack)
            self._last = session.key.sandbox_name
            return session

    async def _forget(self, name: str) -> None:
        _, stack = self._sessions.pop(name)
        if self._last == name:
            self._last = None
        with anyio.CancelScope(shield=True):
            await stack.aclose()

    async def _open(self, given: inputs.OpenInput) -> Result:
        session = await self._opened(given.session_key, given.image)
        effective = session.effective
        return {
            "ok": True,
            "sandbox_id": session.key.sandbox_name,
            "session_id": str(session.key),
            "image": effective.image or effective.runtime,
            "workdir": effective.workspace,
            "created": session.created,
            "changed": session.changed,
            "workspace_lost": session.workspace_lost,
            "status": "ready",
            "engine": effective.engine,
            "limits": {
                **effective.limits,
                **({"clamped": cut} if (cut := self._offer.cut()) else {}),
                **({"not_held": effective.not_held} if effective.not_held else {}),
            },
        }

    async def _close(self, given: inputs.CloseInput) -> Result:
        session = await self._session(given.sandbox_id)
        await session.close()
        await self._forget(session.key.sandbox_name)
        return {"ok": True, "closed": True, "session_id": str(session.key)}

    # --- programs

    async def _exec(self, given: inputs.ExecInput) -> Result:
        session = await self._session(given.sandbox_id)
        decision, settings = self._offer.decision, self._offer.settings
        timeout = given.timeout_seconds or decision.timeout
        limits: dict[str, Any] = {
            "timeout_seconds": policy.timeout(timeout, settings),
            "max_stdout_bytes": decision.max_stdout_bytes,
            "max_stderr_bytes": decision.max_stderr_bytes,
        }
        if limits["timeout_seconds"] != timeout:
            columns = {"asked": timeout, "allowed": settings.max_timeout, "effective": limits["timeout_seconds"]}
            limits["clamped"] = {"timeout_seconds": {**columns, "verdict": policy.Verdict.CLAMPED.value}}
        options: dict[str, Any] = {
            "timeout": timeout,
            "cwd": given.cwd,
            "env": {**given.env, **self._offer.secrets},
            "max_stdout_bytes": decision.max_stdout_bytes,
            "max_stderr_bytes": decision.max_stderr_bytes,
        }
        command = given.cmd if given.cmd is not None else str(given.command)
        if given.stream:
            process = await session.start(command, **options)
            return {"ok": True, "exec_id": process.id, "status": "running", "limits": limits}
        ended = await session.exec(command, **options)
        return {**shown.result(ended), "exec_id": ended.exec_id, "status": "completed", "limits": limits}

    async def _exec_read(self, given: inputs.ExecReadInput) -> Result:
        process = (await self._session(given.sandbox_id)).process(given.exec_id)
        read = await process.read(given.since_seq, wait=1, max_bytes=_READ_BYTES)
        pieces, after = shown.chunks(read, given.max_chunks, self._offer.masker)
        return {
            "ok": True,
            "chunks": pieces,
            "next_seq": after,
            "expired_bytes": read.expired_bytes,
            "done": read.ended and after == read.next,
        }

    async def _exec_wait(self, given: inputs.ExecWaitInput) -> Result:
        process = (await self._session(given.sandbox_id)).process(given.exec_id)
        try:
            ended = await process.wait(given.timeout_seconds or 60)
        except TimeoutError:
            return {"ok": True, "done": False, "status": "running"}
        return {**shown.result(ended), "done": True, "status": "completed"}

    # --- files

    async def _write(self, given: inputs.FsWriteInput) -> Result:
        encoded = given.contents_b64 if given.contents is None else given.contents
        content: str | bytes = str(encoded)
        if given.contents is None or given.encoding == "base64":
            try:
                content = base64.b64decode(str(encoded), validate=True)
            except (binascii.Error, ValueError) as error:
                raise errors.InvalidRequest(f"contents is no base64: {error}") from error
        session = await self._session(given.sandbox_id)
        mode = None if given.mode is None else int(given.mode, 8)
        entry = await session.write(given.path, content, mode=mode, overwrite=given.overwrite)
        return {"ok": True, "path": _absolute(session, entry.path), "size_bytes": entry.size_bytes}

    async def _read(self, given: inputs.FsReadInput) -> Result:
        session = await self._session(given.sandbox_id)
        data, truncated, size = await session.read_part(given.path, max_bytes=given.max_bytes)
        text = None if given.encoding == "base64" else shown.text(data, truncated)
        content = {"contents_b64": base64.b64encode(data).decode()} if text is None else {"contents": text}
        path = _absolute(session, given.path)
        return {"ok": True, "path": path, **content, "truncated": truncated, "size_bytes": size}

    async def _list(self, given: inputs.FsListInput) -> Result:
        session = await self._session(given.sandbox_id)
        found = await session.list(given.path, recursive=given.recursive, max_entries=_LISTED)
        entries: list[dict[str, Any]] = []
        room = _LISTED_BYTES
        for entry in map(_entry, found.entries):
            room -= len(entry["path"].encode())
            if room < 0:
                break
            entries.append(entry)
        return {"ok": True, "entries": entries, "truncated": found.truncated or room < 0}

    async def _delete(self, given: inputs.FsDeleteInput) -> Result:
        session = await self._session(given.sandbox_id)
        await session.delete(given.path, recursive=given.recursive)
        path = _absolute(session, given.path)
        return {"ok": True, "deleted": path, "path": path}


async def _usable(session: Session) -> bool:
    try:
        await session.guest()
    except errors.SessionError:
        return False
    return True


def _absolute(session: Session, path: str) -> str:
    shown_path = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return posixpath.normpath(posixpath.join(session.effective.workspace, shown_path))


def _entry(entry: FileEntry) -> dict[str, Any]:
    told = entry.as_tool()
    return {
        "path": told["path"],
        "type": _KINDS.get(entry.kind, entry.kind.value),
        "size": entry.size_bytes,
        "mode": told["mode"],
        "mtime_unix": entry.modified_ms // 1000,
    }


def _with_image(config: SandboxConfig, image: str) -> SandboxConfig:
    """The config with another image, as the author could have written it."""
    try:
        spelling.image(image)
    except ValueError as error:
        raise errors.InvalidRequest(f"image: {error}") from error
    return SandboxConfig.model_validate({**config.model_dump(exclude_defaults=True), "image": image, "runtime": None})

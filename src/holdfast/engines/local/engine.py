"""The engine `local`: a sandbox is a bubblewrap process whose PID 1 is the guest."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict

import anyio
import anyio.abc
import anyio.to_thread

from ... import errors
from ...abc import AlreadyThere, Capability, Effective, Engine, EngineStatus, SandboxRecord, SandboxSpec
from ..sockets import SocketStream
from . import cgroups, runtimes
from .process import SandboxProcess, kill_session
from .state import Folder, Remembered, prepare, process_start

_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"


class LocalEngine(Engine):
    """Sandboxes on this machine, from the host's own runtimes."""

    name = "local"
    swept_in_background = True

    def __init__(self) -> None:
        self._version: str | None = None

    async def check(self) -> EngineStatus:
        if reason := _unusable():
            return EngineStatus(False, reason=reason[0], fix=reason[1])
        capabilities = {
            Capability.COMPUTE,
            Capability.CODE,
            Capability.REAL_PROCESSES,
            Capability.NETWORK_OFF,
            Capability.WORKSPACE_LIMIT,
        }
        missing = ""
        if cgroups.version() is None:
            missing = "memory and process limits hold for each process or user only: this user may make no cgroups"
        else:
            capabilities |= {Capability.MEMORY_LIMIT, Capability.PROCESS_LIMIT, Capability.CPU_LIMIT}
        if self._version is None:
            self._version = await anyio.to_thread.run_sync(_bubblewrap_version)
        return EngineStatus(True, self._version, frozenset(capabilities), missing)

    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        _require(spec)
        # The thread is not left behind when we are cancelled: it ends, and the caller has a record to destroy.
        return await anyio.to_thread.run_sync(self._create, spec)

    def _create(self, spec: SandboxSpec) -> SandboxRecord:
        state = prepare()
        folder = Folder(state, spec.name)
        with folder.lock():
            if folder.alive():
                raise AlreadyThere(spec.name)
            kill_session(folder)  # a dead one of this name may have left something
            folder.clear()
            process = SandboxProcess(spec, state, folder)
            try:
                pid = process.start()
                record = Remembered(
                    name=spec.name,
                    created_at=time.time(),
                    pid=pid,
                    pid_start=process_start(pid) or 0,
                    effective=asdict(process.effective()),
                    spec_digest=spec.digest,
                    labels=spec.labels,
                    max_lifetime=spec.max_lifetime,
                    keep_for=spec.keep_for,
                )
                folder.remember(record)
            except BaseException:
                process.end()
                folder.remove()
                raise
        return _record(folder, record, alive=True)

    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        try:
            stream = SocketStream.connect(record.address)
        except OSError:
            raise errors.SessionNotFound("the session has ended; open it again") from None
        found = Folder(prepare(), record.name).recall()
        if found is None or found.created_at != record.created_at:  # a later one of this name answered
            await anyio.aclose_forcefully(stream)
            raise errors.SessionNotFound("the session has ended, and there is a new one; open it again")
        return stream

    async def destroy(self, record: SandboxRecord) -> None:
        def remove() -> None:
            folder = Folder(prepare(), record.name)
            with folder.lock():
                found = folder.recall()
                if found is None or found.created_at == record.created_at:  # else it is another's by now
                    kill_session(folder)
                    folder.remove()

        await anyio.to_thread.run_sync(remove)

    async def list(self) -> Sequence[SandboxRecord]:
        return await anyio.to_thread.run_sync(_all_records)

    async def find(self, name: str) -> SandboxRecord | None:
        if _unusable():
            return None

        def look() -> SandboxRecord | None:
            folder = Folder(prepare(), name)
            remembered = folder.recall()
            return _record(folder, remembered, alive=True) if remembered and folder.alive() else None

        return await anyio.to_thread.run_sync(look)

    @contextlib.asynccontextmanager
    async def once(self, spec: SandboxSpec) -> AsyncIterator[tuple[anyio.abc.ByteStream, Effective]]:
        _require(spec)
        process = await anyio.to_thread.run_sync(lambda: SandboxProcess(spec, prepare(), None))
        try:
            stream = SocketStream(await anyio.to_thread.run_sync(process.start_once))
            try:
                yield stream, process.effective()
            except errors.SessionLost as error:
                # A sandbox that never came up has left its reason on stderr.
                raise (await anyio.to_thread.run_sync(process.failure, error) or error) from error
            finally:
                await anyio.aclose_forcefully(stream)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.end)


def _all_records() -> list[SandboxRecord]:
    found: list[SandboxRecord] = []
    for path in sorted((prepare() / "sessions").iterdir()):
        folder = Folder(path.parent.parent, path.name)
        if remembered := folder.recall():
            found.append(_record(folder, remembered, folder.alive()))
    return found


def _record(folder: Folder, found: Remembered, alive: bool) -> SandboxRecord:
    return SandboxRecord(
        name=found.name,
        engine="local",
        address=str(folder.address),
        created_at=found.created_at,
        alive=alive,
        effective=Effective(**found.effective),
        spec_digest=found.spec_digest,
        labels=found.labels,
        expires_at=None if found.max_lifetime is None else found.created_at + found.max_lifetime,
        keep_for=found.keep_for,
    )


def _require(spec: SandboxSpec) -> None:
    """Refuse what this engine cannot do, before anything is made."""
    if reason := _unusable():
        raise errors.EngineUnavailable(f"the engine local: {reason[0]}; {reason[1]}")
    if spec.image is not None:
        raise errors.EngineUnavailable("the engine local has no images, only this machine's python, node and bash")
    if spec.network:
        raise errors.EngineUnavailable("the engine local cannot give a sandbox a network of its own")
    if spec.runtime not in runtimes.host_runtimes():
        raise errors.EngineUnavailable(f"this machine has no {spec.runtime}; install it or use another engine")


@functools.cache
def _unusable() -> tuple[str, str] | None:
    """Why this engine cannot work here, and the way out."""
    if sys.platform != "linux":
        return "it needs Linux", "use the engine docker"
    for program, fix in (
        ("bwrap", _INSTALL),
        ("unshare", "install util-linux"),
    ):
        if not shutil.which(program):
            return f"{program} is not installed", fix
    return None


def _bubblewrap_version() -> str:
    return subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.strip()

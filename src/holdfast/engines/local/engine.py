"""The engine `local`: a sandbox is a bubblewrap process whose PID 1 is the guest."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from ... import errors
from ...abc import AlreadyThere, Capability, Effective, Engine, EngineStatus, SandboxRecord, SandboxSpec
from ...guest.binary import guest_path, sealed
from ..sockets import SocketStream
from . import cgroups, runtimes
from .bubblewrap import Launch
from .state import Folder, Remembered, prepare, process_start

_START_PATIENCE = 20.0
_END_PATIENCE = 5.0
_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"


class LocalEngine(Engine):
    """Sandboxes on this machine, from the host's own runtimes."""

    name = "local"

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
        made: list[_Process] = []
        try:
            return await anyio.to_thread.run_sync(self._create, spec, made)
        except BaseException:  # cancelled, too: whatever was started must go
            with anyio.CancelScope(shield=True):
                for process in made:
                    await anyio.to_thread.run_sync(process.end)
            raise

    def _create(self, spec: SandboxSpec, made: list[_Process]) -> SandboxRecord:
        state = prepare()
        folder = Folder(state, spec.name)
        with folder.lock():
            if folder.alive():
                raise AlreadyThere(spec.name)
            _kill(folder)  # a dead one of this name may have left something
            folder.clear()
            process = _Process(spec, state, folder)
            made.append(process)
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
                    _kill(folder)
                    folder.remove()

        await anyio.to_thread.run_sync(remove)

    async def list(self) -> Sequence[SandboxRecord]:
        return await anyio.to_thread.run_sync(_all_records)

    async def find(self, name: str) -> SandboxRecord | None:
        def look() -> SandboxRecord | None:
            folder = Folder(prepare(), name)
            remembered = folder.recall()
            return _record(folder, remembered, alive=True) if remembered and folder.alive() else None

        return await anyio.to_thread.run_sync(look)

    @contextlib.asynccontextmanager
    async def once(self, spec: SandboxSpec) -> AsyncIterator[tuple[anyio.abc.ByteStream, Effective]]:
        _require(spec)
        process = await anyio.to_thread.run_sync(lambda: _Process(spec, prepare(), None))
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


class _Process:
    """One bubblewrap with its cgroups, from the host's side. All of it blocks for some milliseconds."""

    def __init__(self, spec: SandboxSpec, state: Path, folder: Folder | None) -> None:
        self._spec, self._state, self._folder = spec, state, folder
        self._cgroup = cgroups.create(_group_name(state, spec.name), spec.limits) if cgroups.version() else None
        self._child: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._stderr = os.memfd_create("holdfast-stderr") if folder is None else -1

    def start(self) -> int:
        """Start a session, detached; returns the pid of its PID 1 when bubblewrap has made it."""
        assert self._folder is not None
        read, write = os.pipe()
        try:
            with self._folder.listen() as listener, self._folder.log.open("wb") as log:
                command = self._launch(listener.fileno(), write).command()
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(), write),
                    start_new_session=True,
                )
        finally:
            os.close(write)
        try:
            self._pid = _child_pid(read)
        finally:
            os.close(read)
        if self._pid is None:
            _ended(self._child, _END_PATIENCE)
            said = self._folder.log.read_text(errors="replace").strip()
            raise errors.EngineFailed(f"bubblewrap could not make the sandbox: {errors.printable(said[-500:])}")
        _adopt(self._child)
        return self._pid

    def start_once(self) -> socket.socket:
        """Start a sandbox for one run; the socket is its stdin and stdout."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = self._launch(None, None).command()
            self._child = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C at a terminal is the caller's: it cancels, and the guest cleans up
            )
        return ours

    def _launch(self, listen_fd: int | None, info_fd: int | None) -> Launch:
        return Launch(self._spec, sealed(guest_path(), self._state), self._state, self._cgroup, listen_fd, info_fd)

    def effective(self) -> Effective:
        limits = self._spec.limits
        not_held: dict[str, str] = {}
        if self._cgroup is None:
            if limits.memory_mb is not None:
                not_held["memory_mb"] = "holds for each process, not for all together: no cgroups for this user"
            if limits.processes is not None:
                not_held["processes"] = "holds by RLIMIT_NPROC: no cgroups for this user"
            if limits.cpu_millicores is not None:
                not_held["cpu_millicores"] = "no cgroups for this user"
        return Effective(
            engine="local",
            runtime=self._spec.runtime,
            image=None,
            workspace=self._spec.workspace,
            network=self._spec.network,
            profile="strict",
            limits=limits.model_dump(exclude_none=True),
            not_held=not_held,
        )

    def failure(self, error: Exception) -> errors.EngineFailed | None:
        """What stderr says of a sandbox that never spoke. Its socket closes a moment before it is a dead process."""
        if self._child is None or not _ended(self._child, 1.0) or self._child.returncode == 0:
            return None
        said = os.pread(self._stderr, 4096, 0).decode(errors="replace").strip()
        return errors.EngineFailed(f"the sandbox could not be made: {errors.printable(said) or error}")

    def end(self) -> None:
        """Kill what is left, wait for it, and remove the cgroups."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        # One run: its socket is closed, so its guest is on its way out. A session's PID 1 is dead.
        if self._child is not None and not _ended(self._child, 1.0):
            self._child.kill()  # --die-with-parent takes the sandbox along
            _ended(self._child, _END_PATIENCE)
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1
        if self._cgroup is not None:
            self._cgroup.remove()


def _readable(descriptor: int, patience: float) -> bool:
    poll = select.poll()  # not select: a busy process has descriptors beyond 1024
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(patience * 1000))


def _ended(child: subprocess.Popen[bytes], patience: float) -> bool:
    """Wait for a child. `Popen.wait` with a timeout sleeps between looks; a pidfd tells at once."""
    if child.poll() is None:
        descriptor = os.pidfd_open(child.pid)
        try:
            _readable(descriptor, patience)
        finally:
            os.close(descriptor)
    return child.poll() is not None


def _all_records() -> list[SandboxRecord]:
    found: list[SandboxRecord] = []
    for path in sorted((prepare() / "sessions").iterdir()):
        folder = Folder(path.parent.parent, path.name)
        if remembered := folder.recall():
            found.append(_record(folder, remembered, folder.alive()))
    return found


_adopted: list[subprocess.Popen[bytes]] = []


def _adopt(child: subprocess.Popen[bytes]) -> None:
    """A session outlives whoever opened it; while this process lives it reaps the ones that ended."""
    _adopted[:] = [known for known in _adopted if known.poll() is None]
    _adopted.append(child)


def _child_pid(info: int) -> int | None:
    """bubblewrap writes {"child-pid": N, …} when the sandbox exists; None: it failed before."""
    deadline = time.monotonic() + _START_PATIENCE
    text = b""
    while (left := deadline - time.monotonic()) > 0 and _readable(info, left):
        piece = os.read(info, 4096)
        text += piece
        if not piece or b"}" in text:
            break
    try:
        return int(json.loads(text)["child-pid"])
    except (ValueError, KeyError):
        return None


def _group_name(state: Path, name: str) -> str:
    """cgroups are the machine's: sessions of one key in two state folders must not share one."""
    return f"{name}-{hashlib.sha256(os.fsencode(state)).hexdigest()[:8]}"


def _kill(folder: Folder) -> None:
    """Kill a session's PID 1, if it is still the one that was written down, and remove its cgroups."""
    if found := folder.recall():
        deadline = time.monotonic() + _END_PATIENCE
        while process_start(found.pid) == found.pid_start and time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)
            time.sleep(0.002)
        if group := cgroups.existing(_group_name(folder.path.parent.parent, found.name)):
            group.remove()
    for child in _adopted:
        child.poll()


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
        ("mount", "install util-linux"),
    ):
        if not shutil.which(program):
            return f"{program} is not installed", fix
    return None


def _bubblewrap_version() -> str:
    return subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.strip()

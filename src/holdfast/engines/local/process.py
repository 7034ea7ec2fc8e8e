"""One bubblewrap with its cgroups, from the host's side: how it starts and how it ends. All of it blocks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

from ... import errors
from ...abc import Effective, SandboxSpec
from ...guest.binary import guest_path, sealed
from ...guest.connection import config_frame
from . import cgroups
from .bubblewrap import Launch
from .state import Folder, process_start

_START_PATIENCE = 20.0
_END_PATIENCE = 5.0


class SandboxProcess:
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
            with contextlib.ExitStack() as stack:
                listener = stack.enter_context(self._folder.listen())
                log = stack.enter_context(self._folder.log.open("wb"))
                launch = self._launch(listener.fileno(), write)
                config = stack.enter_context(_memory_file(config_frame(launch.config())))
                self._child = subprocess.Popen(
                    launch.command(),
                    stdin=config,
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
            launch = self._launch(None, None)
            self._child = subprocess.Popen(
                launch.command(),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C at a terminal is the caller's: it cancels, and the guest cleans up
            )
        with contextlib.suppress(OSError):  # it has ended already: its stderr says why
            ours.sendall(config_frame(launch.config()))
        return ours

    def _launch(self, listen_fd: int | None, info_fd: int | None) -> Launch:
        return Launch(self._spec, sealed(guest_path(), self._state), self._state, self._cgroup, listen_fd, info_fd)

    def effective(self) -> Effective:
        limits = self._spec.limits
        not_held: dict[str, str] = {}
        held_by = {
            "workspace_mb": "a tmpfs of this size",
            "max_files": "the inodes of that tmpfs",
            "max_file_size_bytes": "RLIMIT_FSIZE",
            "open_files": "RLIMIT_NOFILE",
        }
        if self._cgroup is not None:
            held_by |= dict.fromkeys(("memory_mb", "processes", "cpu_millicores"), "a cgroup of the sandbox's own")
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
            held_by={name: why for name, why in held_by.items() if getattr(limits, name) is not None},
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


def _memory_file(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("holdfast-config"), "w+b")
    file.write(content)
    file.seek(0)
    return file


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


def kill_session(folder: Folder) -> None:
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

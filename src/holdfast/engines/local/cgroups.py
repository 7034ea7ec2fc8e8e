"""Limits on a whole sandbox, by the kernel's cgroups, version 1 or 2, where this process may make some."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ...config import Limits

_ROOT = Path("/sys/fs/cgroup")
_OURS = "holdfast"
_ABANDONED = 300.0
"""seconds after which an empty cgroup is nobody's"""
_GUEST_MB = 64
"""memory that the guest itself may need on top"""
GUEST_TASKS = 104
"""threads of the guest and its supervisors, and their parked children"""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroups of one sandbox."""

    folders: tuple[Path, ...]
    join: tuple[Path, ...]
    """files that a process writes `0` to, to become a member"""
    memory_events: Path
    pids_events: Path

    def remove(self) -> None:
        """Remove the folders; members die a moment after their PID 1, so try for a second."""
        for folder in self.folders:
            for _ in range(1000):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.001)
                else:
                    break


@functools.cache
def version() -> int | None:
    """1, 2, or None where this process may make no cgroups."""
    if (_ROOT / "cgroup.controllers").is_file():
        wanted = {"memory", "pids", "cpu"}
        has = wanted <= set((_ROOT / "cgroup.controllers").read_text().split())
        return 2 if has and os.access(_ROOT, os.W_OK) and _delegate() else None
    v1 = [_ROOT / controller for controller in ("memory", "pids", "cpu")]
    return 1 if all((folder / "tasks").is_file() and os.access(folder, os.W_OK) for folder in v1) else None


def _delegate() -> bool:
    try:
        (_ROOT / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        (_ROOT / _OURS).mkdir(exist_ok=True)
        (_ROOT / _OURS / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    except OSError:
        return False
    return True


@functools.cache
def tidy() -> None:
    """Remove what sandboxes of killed clients left; once in each process. The kernel refuses where somebody lives."""
    if not version():
        return
    for folder in [*_ROOT.glob(f"*/{_OURS}/*/"), *_ROOT.glob(f"{_OURS}/*/")]:
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED:  # a new one is empty for a moment
                folder.rmdir()


def create(name: str, limits: Limits) -> Cgroup:
    """Make the cgroups of a sandbox and set its limits. Call only where `version()` is not None."""
    tidy()
    memory = None
    if limits.memory_mb is not None:
        # The workspace lies in memory: its pages count too, and a full one must not kill the session.
        memory = (limits.memory_mb + (limits.workspace_mb or 0) + _GUEST_MB) << 20
    tasks = None if limits.processes is None else limits.processes + GUEST_TASKS
    return _create_v2(name, memory, tasks, limits) if version() == 2 else _create_v1(name, memory, tasks, limits)


def _create_v1(name: str, memory: int | None, tasks: int | None, limits: Limits) -> Cgroup:
    folders = {controller: _ROOT / controller / _OURS / name for controller in ("memory", "pids", "cpu")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    if memory is not None:
        (folders["memory"] / "memory.limit_in_bytes").write_text(str(memory))
        swap = folders["memory"] / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text(str(memory))
    if tasks is not None:
        (folders["pids"] / "pids.max").write_text(str(tasks))
    if limits.cpu_millicores is not None:
        (folders["cpu"] / "cpu.cfs_period_us").write_text("100000")
        (folders["cpu"] / "cpu.cfs_quota_us").write_text(str(limits.cpu_millicores * 100))
    # `tasks`, not `cgroup.procs`: a single thread that moves itself need not stop the world.
    return Cgroup(
        tuple(folders.values()),
        tuple(folder / "tasks" for folder in folders.values()),
        folders["memory"] / "memory.oom_control",
        folders["pids"] / "pids.events",
    )


def _create_v2(name: str, memory: int | None, tasks: int | None, limits: Limits) -> Cgroup:
    folder = _ROOT / _OURS / name
    folder.mkdir(parents=True, exist_ok=True)
    if memory is not None:
        (folder / "memory.max").write_text(str(memory))
        swap = folder / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")
    if tasks is not None:
        (folder / "pids.max").write_text(str(tasks))
    if limits.cpu_millicores is not None:
        (folder / "cpu.max").write_text(f"{limits.cpu_millicores * 100} 100000")
    return Cgroup((folder,), (folder / "cgroup.procs",), folder / "memory.events", folder / "pids.events")


def existing(name: str) -> Cgroup | None:
    """The cgroups of a sandbox that another process made."""
    folders = [
        *(_ROOT / controller / _OURS / name for controller in ("memory", "pids", "cpu")),
        _ROOT / _OURS / name,
    ]
    there = tuple(folder for folder in folders if folder.is_dir())
    return Cgroup(there, (), Path(), Path()) if there else None

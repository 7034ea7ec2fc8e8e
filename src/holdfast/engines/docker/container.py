"""The container of one sandbox, in the words of the daemon's API: profiles, limits, the guest."""

from __future__ import annotations

import functools
import io
import tarfile
from dataclasses import dataclass
from typing import Any, Literal

from ...abc import Effective, SandboxSpec
from ...guest.binary import guest_path
from ...guest.protocol import GuestConfig, GuestLimits
from . import seccomp
from .about import About
from .images import Image

HOME = "/home/sandbox"
FOLDER = "/.holdfast"
GUEST = f"{FOLDER}/guest"
SOCKET_FOLDER = f"{FOLDER}-run"
SOCKET = f"{SOCKET_FOLDER}/sock"
STRICT_USER = 65532
DIAL_USER = 65531
"""of the way in: programs that are not root cannot stop or kill what belongs to somebody else"""
_TMP_MB, _HOME_MB, _SHM_MB, _GUEST_MB = 64, 16, 16, 64
_GUEST_TASKS = 104
"""threads of the guest and its supervisors, and their parked children"""
_HELD_BY = {
    "memory_mb": "the container's cgroup",
    "processes": "the container's cgroup",
    "cpu_millicores": "the container's cgroup",
    "workspace_mb": "a tmpfs of this size",
    "max_files": "the inodes of that tmpfs",
    "max_file_size_bytes": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
    "root_file_system_mb": "a quota of the daemon's storage",
    "network_deny": "routes of the container's network",
}
_NO_QUOTA = (
    "the daemon's storage has no quotas: programs may fill it beside the workspace; not so in the profile strict"
)
# What package managers need as root of the container, and what the guest needs to start programs as somebody else.
_STANDARD_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID", "KILL"]


@dataclass(frozen=True, slots=True)
class Container:
    """All that a container is made from."""

    spec: SandboxSpec
    image: Image
    profile: Literal["standard", "strict"]
    about: About
    serves: Literal["serve", "run"]
    """whether its guest listens for hosts, or has one, on its stdin and stdout"""
    quota: bool
    """the storage driver bounds the root file system"""
    closed: tuple[str, ...] = ()
    """networks that it cannot reach, although it has a network"""

    @property
    def user(self) -> int:
        return STRICT_USER if self.profile == "strict" else 0

    def body(self, labels: dict[str, str]) -> dict[str, Any]:
        """What is sent to make it."""
        return {
            "Image": self.image.id,
            "Entrypoint": [GUEST],
            "Cmd": [self.serves, "-"],
            "User": f"{self.user}:{self.user}",
            "WorkingDir": "/",
            "Hostname": "sandbox",
            "Labels": labels,
            "Volumes": {FOLDER: {}},  # read-only containers take files into volumes only; it goes with the container
            "Healthcheck": {"Test": ["NONE"]},  # an image's own would be run beside the guest
            "StopSignal": "SIGKILL",
            # By stdin the guest gets its config, and its first host talks to it. When that one goes, stdin ends.
            "OpenStdin": True,
            "StdinOnce": True,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": self.host_config(),
        }

    def host_config(self) -> dict[str, Any]:
        limits, strict = self.spec.limits, self.profile == "strict"
        asked: dict[str, Any] = {
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no"},
            "Init": False,  # a daemon may be set to put a PID 1 of its own before ours
            "NetworkMode": "bridge" if self.spec.network else "none",
            "IpcMode": "private",
            "ShmSize": _SHM_MB << 20,
            "ReadonlyRootfs": strict,
            "Tmpfs": self._tmpfs(),
            "CapDrop": ["ALL"],
            "CapAdd": None if strict else _STANDARD_CAPABILITIES,
            "SecurityOpt": [
                "no-new-privileges:true",
                f"seccomp={seccomp.profile(self.about.arch, self.spec.network)}",
            ],
            "OomScoreAdj": 500,
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none", "Config": {}},
        }
        if limits.memory_mb is not None:
            asked["Memory"] = (limits.memory_mb + self._beside_mb) << 20
            if self.about.counts_swap:
                asked["MemorySwap"] = asked["Memory"]
        if limits.processes is not None:
            asked["PidsLimit"] = limits.processes + _GUEST_TASKS
        if limits.cpu_millicores is not None:
            asked |= {"CpuPeriod": 100_000, "CpuQuota": limits.cpu_millicores * 100}
        if self.quota:
            asked["StorageOpt"] = {"size": f"{limits.workspace_mb}m"}
        return asked

    @property
    def _beside_mb(self) -> int:
        """What counts as memory beside the programs: a full tmpfs must not kill the session."""
        beside = (self.spec.limits.workspace_mb or 0) + _GUEST_MB + _SHM_MB
        return beside + _TMP_MB + _HOME_MB if self.profile == "strict" else beside

    def _tmpfs(self) -> dict[str, str]:
        limits, owner = self.spec.limits, f"uid={self.user},gid={self.user}"
        size = "" if limits.workspace_mb is None else f",size={limits.workspace_mb}m"
        inodes = "" if limits.max_files is None else f",nr_inodes={limits.max_files + 8}"
        tmpfs = {
            self.spec.workspace: f"rw,exec,nosuid,nodev,mode=0755,{owner}{size}{inodes}",
            SOCKET_FOLDER: f"rw,noexec,nosuid,nodev,size=64k,nr_inodes=8,mode=0710,{owner}",
        }
        if self.profile == "strict":
            tmpfs["/tmp"] = f"rw,exec,nosuid,nodev,size={_TMP_MB}m,nr_inodes=16384,mode=1777"
            tmpfs[HOME] = f"rw,nosuid,nodev,size={_HOME_MB}m,nr_inodes=4096,mode=0700,{owner}"
        return tmpfs

    def guest_config(self) -> GuestConfig:
        limits = self.spec.limits
        v2 = self.about.cgroup_version == 2
        return GuestConfig(
            workspace=self.spec.workspace,
            socket=SOCKET,
            idle_timeout_ms=_ms(self.spec.idle_timeout),
            max_lifetime_ms=_ms(self.spec.max_lifetime),
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8",
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **self.image.env,
                "HOME": HOME if self.profile == "strict" else "/root",
                **self.spec.env,
            },
            limits=GuestLimits(
                open_files=limits.open_files, file_bytes=limits.max_file_size_bytes, files=limits.max_files
            ),
            network=self.spec.network,
            memory_events=f"/sys/fs/cgroup/{'memory.events' if v2 else 'memory/memory.oom_control'}",
            pids_events=f"/sys/fs/cgroup/{'pids.events' if v2 else 'pids/pids.events'}",
        )

    def effective(self, host: dict[str, Any]) -> Effective:
        """The sandbox as `host`, its HostConfig, says."""
        limits = self.spec.limits.model_dump(exclude_none=True)
        if "memory_mb" in limits:
            limits["memory_mb"] = (host["Memory"] >> 20) - self._beside_mb
        if "processes" in limits:
            limits["processes"] = host["PidsLimit"] - _GUEST_TASKS
        if "cpu_millicores" in limits:
            limits["cpu_millicores"] = host["CpuQuota"] * 1000 // host["CpuPeriod"]
        not_held: dict[str, str] = {}
        if self.profile == "standard" and "workspace_mb" in limits:
            limits["root_file_system_mb"] = limits["workspace_mb"]
            if not self.quota:
                not_held["root_file_system_mb"] = _NO_QUOTA
        if self.closed:
            limits["network_deny"] = list(self.closed)
        held_by = {name: why for name, why in _HELD_BY.items() if name in limits and name not in not_held}
        if "memory_mb" in limits and not self.about.counts_swap:
            not_held["memory_mb"] = "holds without swap: this daemon's kernel does not count that"
        return Effective(
            engine="docker",
            runtime=self.spec.runtime,
            image=self.image.reference,
            workspace=self.spec.workspace,
            network=host["NetworkMode"] != "none",
            profile=self.profile,
            limits=limits,
            not_held=not_held,
            held_by=held_by,
        )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


@functools.cache
def guest_archive(arch: str) -> bytes:
    """An uncompressed tar: a daemon unpacks a compressed one with programs of the container (CVE-2026-41567).

    Readable, other than on `local`: a supervisor can so offer its programs to the kernel before the guest when memory
    runs out. What could take over one in its first moment is still under the container's own seccomp profile.
    """
    program = guest_path(arch).read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo("guest")
        entry.size, entry.mode = len(program), 0o555
        archive.addfile(entry, io.BytesIO(program))
    return buffer.getvalue()

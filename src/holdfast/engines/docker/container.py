"""The container of one sandbox: profiles, limits, the guest."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from typing import Any, Literal

from ...abc import Effective, SandboxSpec
from ...guest.binary import guest_path
from ...guest.protocol import GuestConfig, GuestLimits
from . import seccomp
from .daemon import Client

HOME = "/home/sandbox"
FOLDER = "/.holdfast"
GUEST = f"{FOLDER}/guest"
SOCKET_FOLDER = f"{FOLDER}-run"
SOCKET = f"{SOCKET_FOLDER}/sock"
STRICT_USER = 65532
_TMP_MB, _HOME_MB, _SHM_MB, _GUEST_MB = 64, 16, 16, 64
_GUEST_TASKS = 96
"""threads of the guest and its supervisors"""
# What package managers need as root of the container, and what the guest needs to start programs as somebody else.
_STANDARD_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID", "KILL"]


@dataclass(frozen=True, slots=True)
class Container:
    """All that a container is made from."""

    spec: SandboxSpec
    image: str
    """the image's id: a tag may move between the check and the start"""
    reference: str
    profile: Literal["standard", "strict"]
    arch: str
    cgroup_version: int

    @property
    def user(self) -> int:
        return STRICT_USER if self.profile == "strict" else 0

    def create(self, client: Client, labels: dict[str, str]) -> str:
        """Create it, with the guest in it, not yet started. Blocks. Returns its id."""
        made = client.create_container(
            self.image,
            [GUEST, "serve", self._config().model_dump_json()],
            name=self.spec.name,
            entrypoint=[],
            user=f"{self.user}:{self.user}",
            working_dir="/",
            hostname="sandbox",
            environment={},
            labels=labels,
            volumes=[FOLDER],  # read-only containers take files into volumes only; it goes away with the container
            stop_signal="SIGKILL",
            host_config=self._host_config(client),
        )["Id"]
        client.put_archive(made, FOLDER, _guest_archive(self.arch))
        return str(made)

    def _host_config(self, client: Client) -> Any:
        limits, strict = self.spec.limits, self.profile == "strict"
        owner = f"uid={self.user},gid={self.user}"
        workspace = "" if limits.workspace_mb is None else f",size={limits.workspace_mb}m"
        inodes = "" if limits.max_files is None else f",nr_inodes={limits.max_files + 8}"
        tmpfs = {
            self.spec.workspace: f"rw,exec,nosuid,nodev,mode=0755,{owner}{workspace}{inodes}",
            SOCKET_FOLDER: f"rw,noexec,nosuid,nodev,size=64k,nr_inodes=8,mode=0700,{owner}",
        }
        memory = None
        if limits.memory_mb is not None:
            # What lies in a tmpfs counts as memory: a full workspace must not kill the session.
            memory = (limits.memory_mb + (limits.workspace_mb or 0) + _GUEST_MB + _SHM_MB) << 20
        if strict:
            tmpfs["/tmp"] = f"rw,exec,nosuid,nodev,size={_TMP_MB}m,nr_inodes=16384,mode=1777"
            tmpfs[HOME] = f"rw,nosuid,nodev,size={_HOME_MB}m,nr_inodes=4096,mode=0700,{owner}"
            if memory is not None:
                memory += (_TMP_MB + _HOME_MB) << 20
        cpu = {} if limits.cpu_millicores is None else {"cpu_period": 100_000, "cpu_quota": limits.cpu_millicores * 100}
        return client.create_host_config(
            auto_remove=True,
            network_mode="bridge" if self.spec.network else "none",
            ipc_mode="private",
            shm_size=f"{_SHM_MB}m",
            read_only=strict,
            tmpfs=tmpfs,
            cap_drop=["ALL"],
            cap_add=None if strict else _STANDARD_CAPABILITIES,
            security_opt=["no-new-privileges:true", f"seccomp={seccomp.profile(self.arch, self.spec.network)}"],
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=None if limits.processes is None else limits.processes + _GUEST_TASKS,
            oom_score_adj=500,
            ulimits=[{"Name": "core", "Soft": 0, "Hard": 0}],
            log_config={"Type": "none", "Config": {}},
            **cpu,
        )

    def _config(self) -> GuestConfig:
        limits = self.spec.limits
        v2 = self.cgroup_version == 2
        return GuestConfig(
            workspace=self.spec.workspace,
            socket=SOCKET,
            idle_timeout_ms=None if self.spec.idle_timeout is None else round(self.spec.idle_timeout * 1000),
            max_lifetime_ms=None if self.spec.max_lifetime is None else round(self.spec.max_lifetime * 1000),
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": HOME if self.profile == "strict" else "/root",
                "LANG": "C.UTF-8",
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **self.spec.env,
            },
            limits=GuestLimits(
                open_files=limits.open_files, file_bytes=limits.max_file_size_bytes, files=limits.max_files
            ),
            network=self.spec.network,
            memory_events=f"/sys/fs/cgroup/{'memory.events' if v2 else 'memory/memory.oom_control'}",
            pids_events=f"/sys/fs/cgroup/{'pids.events' if v2 else 'pids/pids.events'}",
        )

    def effective(self) -> Effective:
        limits = self.spec.limits
        return Effective(
            engine="docker",
            runtime=self.spec.runtime,
            image=self.reference,
            workspace=self.spec.workspace,
            network=self.spec.network,
            profile=self.profile,
            limits=limits.model_dump(exclude_none=True),
            not_held={},
        )


def _guest_archive(arch: str) -> bytes:
    """An uncompressed tar: a daemon unpacks a compressed one with programs of the container (CVE-2026-41567)."""
    program = guest_path(arch).read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo("guest")
        entry.size, entry.mode = len(program), 0o555
        archive.addfile(entry, io.BytesIO(program))
    return buffer.getvalue()

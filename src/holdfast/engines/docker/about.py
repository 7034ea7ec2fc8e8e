"""What the daemon says of itself, and what follows from it for the limits of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ... import errors
from ...config import Limits

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_HOLDS = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpu": "CpuCfsQuota"}


@dataclass(frozen=True, slots=True)
class About:
    """The daemon, as far as it matters to us."""

    version: str
    arch: str
    cgroup_version: int
    lacks: tuple[str, ...]
    """limits that its kernel cannot hold: memory, pids, cpu"""
    memory_bytes: int
    """of its machine"""
    counts_swap: bool
    quota: bool
    """its storage driver may be able to bound what a container writes beside its tmpfs"""

    @classmethod
    def parse(cls, info: Mapping[str, Any]) -> About:
        """From the answer to `GET /info`.

        Raises:
            EngineUnavailable: there is no guest for that machine.
        """
        if info.get("OSType") != "linux" or info.get("Architecture") not in _ARCHITECTURES:
            raise errors.EngineUnavailable(
                f"the Docker daemon runs on {info.get('OSType')}/{info.get('Architecture')}; "
                "the guest is built for linux/amd64 and linux/arm64"
            )
        # overlay2 can on xfs with project quotas. Whether they are on is not told: the daemon refuses if not. The other
        # drivers count the image too, so that a size would mean something else there.
        status = {str(row[0]): str(row[1]) for row in info.get("DriverStatus") or [] if len(row) == 2}
        return cls(
            version=str(info.get("ServerVersion", "")),
            arch=_ARCHITECTURES[info["Architecture"]],
            cgroup_version=2 if info.get("CgroupVersion") == "2" else 1,
            lacks=tuple(name for name, field in _HOLDS.items() if not info.get(field)),
            memory_bytes=int(info.get("MemTotal") or 0),
            counts_swap=bool(info.get("SwapLimit")),
            quota=info.get("Driver") == "overlay2" and status.get("Backing Filesystem") == "xfs",
        )

    def require(self, limits: Limits) -> None:
        """A limit that was asked for holds, or nothing is made.

        Raises:
            LimitsNotAvailable: names the limit.
        """
        asked = {"memory": limits.memory_mb, "pids": limits.processes, "cpu": limits.cpu_millicores}
        for name in self.lacks:
            if asked[name] is not None:
                raise errors.LimitsNotAvailable(
                    f"a limit on {name} was asked for and this Docker daemon's kernel cannot hold it; "
                    "ask for none (None) or use another daemon"
                )
        if limits.workspace_mb is not None and limits.workspace_mb << 20 > self.memory_bytes:
            raise errors.LimitsNotAvailable(
                f"the workspace is kept in memory, and {limits.workspace_mb} MB are more than the Docker daemon's "
                f"machine has ({self.memory_bytes >> 20} MB); ask for a smaller workspace_mb"
            )

"""The host's own python3, node and bash, as a sandbox sees them."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """Where a runtime lives on this machine."""

    program: Path
    prefix: Path
    """the folder that holds all it needs; bound read-only unless it lies beneath /usr"""


def _python() -> HostRuntime | None:
    # The interpreter that runs Holdfast, without its virtual environment: found without starting one.
    prefix = Path(sys.base_prefix).resolve()
    program = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return HostRuntime(program, prefix) if program.exists() else None


def _on_path(name: str) -> HostRuntime | None:
    found = shutil.which(name, path=os.defpath) or shutil.which(name)
    if not found:
        return None
    program = Path(found).resolve()
    return HostRuntime(program, program.parent.parent)


@functools.cache
def host_runtimes() -> dict[str, HostRuntime]:
    """The runtimes that this machine has, by name."""
    found = {"python": _python(), "node": _on_path("node"), "bash": _on_path("bash")}
    return {name: runtime for name, runtime in found.items() if runtime}


def foreign_prefixes() -> list[Path]:
    """Folders of runtimes that are not part of the system's own tree."""
    system = (Path("/usr"), Path("/bin"), Path("/"))
    return sorted(
        {
            runtime.prefix
            for runtime in host_runtimes().values()
            if runtime.prefix not in system and not runtime.prefix.is_relative_to("/usr")
        }
    )


def search_path() -> str:
    """PATH inside a sandbox."""
    folders = [str(prefix / "bin") for prefix in foreign_prefixes()]
    return ":".join([*folders, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])

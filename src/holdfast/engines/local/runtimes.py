"""The host's own python3, node and bash, as a sandbox sees them."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = (Path("/usr"), Path("/bin"), Path("/"))


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """Where a runtime lives on this machine."""

    program: Path
    prefix: Path
    """the folder that it was installed into: `bin` and `lib` of it are bound read-only, unless it lies beneath /usr"""


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
    prefix = program.parent.parent
    if prefix not in _SYSTEM and (program.parent.name != "bin" or Path.home().is_relative_to(prefix)):
        return None  # it lies in somebody's home or beside it, and not in a folder of its own
    return HostRuntime(program, prefix)


@functools.cache
def host_runtimes() -> dict[str, HostRuntime]:
    """The runtimes that this machine has, by name."""
    found = {"python": _python(), "node": _on_path("node"), "bash": _on_path("bash")}
    return {name: runtime for name, runtime in found.items() if runtime}


def _foreign_prefixes() -> list[Path]:
    """Where runtimes live that are not part of the system's own tree."""
    return sorted(
        {
            runtime.prefix
            for runtime in host_runtimes().values()
            if runtime.prefix not in _SYSTEM and not runtime.prefix.is_relative_to("/usr")
        }
    )


def foreign_folders() -> list[Path]:
    """What those runtimes need. Not all of where they live: that may be ~/.local, with everything else in it."""
    wanted = (prefix / name for prefix in _foreign_prefixes() for name in ("bin", "lib", "lib64"))
    return [folder for folder in wanted if folder.is_dir() and not folder.is_symlink()]


def search_path() -> str:
    """PATH inside a sandbox."""
    folders = [str(prefix / "bin") for prefix in _foreign_prefixes()]
    return ":".join([*folders, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])

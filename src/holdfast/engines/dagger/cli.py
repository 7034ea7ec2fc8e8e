"""The Dagger CLI, which is the only way into an engine: the one of the operator, of the SDK, or of PATH."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path

from ...errors import EngineUnavailable, printable

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@functools.cache
def sdk_version() -> str:
    """The version of the SDK in this environment; its CLI is the one that was tested with it."""
    return importlib.metadata.version("dagger-io")


def find() -> str | None:
    """The path of a CLI that is here."""
    if named := os.environ.get("_EXPERIMENTAL_DAGGER_CLI_BIN"):
        return shutil.which(named)
    cached = _cache() / f"dagger-{sdk_version()}"
    return str(cached) if os.access(cached, os.X_OK) else shutil.which("dagger")


def _cache() -> Path:
    """Where the SDK keeps the CLIs that it fetched."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "dagger"


def fetch() -> str:
    """Have the SDK fetch its CLI, as it does for everybody who uses it. Blocks, for minutes on a slow line.

    Raises:
        EngineUnavailable: says what to do by hand.
    """
    try:
        from dagger.provisioning._download import Downloader

        return str(Downloader().get_sync())
    except Exception as error:
        raise EngineUnavailable(
            f"there is no Dagger CLI here, and it cannot be fetched: {printable(str(error))[:200]}; "
            f"install dagger v{sdk_version()} on PATH, or set _EXPERIMENTAL_DAGGER_CLI_BIN"
        ) from error


def version_of(cli: str) -> str:
    """What a CLI says of itself, such as v0.21.8; empty if it says nothing of the kind."""
    try:
        said = subprocess.run(
            [cli, "version"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = _VERSION.search(said)
    return f"v{found[0].lstrip('v')}" if found else ""


def skew(engine: str, program: str = "") -> str | None:
    """What is wrong between the versions of an engine, a CLI and the SDK, which we are written for."""
    wanted = _line(sdk_version())
    for what, version in (("CLI", program), ("engine", engine)):
        if _line(version) not in (wanted, None):
            return (
                f"the Dagger {what} is {printable(version)}, and Holdfast is written for {'.'.join(wanted or ())} "
                f"(SDK {sdk_version()}): use v{sdk_version()} of engine and CLI"
            )
    return None


def _line(version: str) -> tuple[str, str] | None:
    """The release line, whose members understand each other; None for a version that is no number."""
    found = _VERSION.match(version)
    return (found[1], found[2]) if found else None

"""The settings file: the one place where tests find the engines, written by `testbed/up`.

Every section but `missing` is there only while its part is up.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TypedDict, cast

from testbed.core import TestbedError

ROOT = Path(__file__).resolve().parent.parent
PATH = ROOT / ".testbed.json"


class DockerSettings(TypedDict):
    host: str
    version: str


class ImageSettings(TypedDict):
    python: str
    node: str
    bash: str
    empty: str


class RegistrySettings(TypedDict):
    address: str


class DaggerHosts(TypedDict):
    """The same engine by three ways, as `_EXPERIMENTAL_DAGGER_RUNNER_HOST` wants them."""

    unix: str
    tcp: str
    container: str


class DaggerSettings(TypedDict):
    version: str
    cli: str
    hosts: DaggerHosts


class NatsSettings(TypedDict):
    url: str
    version: str


class BubblewrapSettings(TypedDict):
    path: str
    version: str


Section = DockerSettings | ImageSettings | RegistrySettings | DaggerSettings | NatsSettings | BubblewrapSettings


class Settings(TypedDict, total=False):
    docker: DockerSettings
    images: ImageSettings
    registry: RegistrySettings
    dagger: DaggerSettings
    nats: NatsSettings
    bubblewrap: BubblewrapSettings
    missing: dict[str, str]
    """Part -> one sentence: why it is not there, and the next step."""


def read(path: Path = PATH) -> Settings | None:
    """What the last `testbed/up` wrote, or None where there is nothing that can be read."""
    try:
        return cast(Settings, json.loads(path.read_text()))
    except (OSError, ValueError):
        return None


def write(settings: Settings, path: Path = PATH) -> None:
    """Writes the file in one step: a reader sees the old one or the new one."""
    require_writable(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(settings, indent=2) + "\n")
    temporary.rename(path)


def require_writable(path: Path = PATH) -> None:
    if not os.access(path.parent, os.W_OK):
        raise TestbedError(
            f"{path} cannot be written by uid {os.geteuid()}", "call it as the owner of the tree, or as root"
        )


def remove(path: Path = PATH) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()

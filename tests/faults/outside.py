"""Where the host finds a sandbox, engine by engine: its PID 1, its cgroups, and what it must not leave behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from pathlib import Path
from typing import Any, Protocol

import docker
from docker.errors import NotFound

from holdfast.aio import Session
from holdfast.engines.docker import labels

CGROUPS = Path("/sys/fs/cgroup")
_PATIENCE = 10.0


class Outside(Protocol):
    """One sandbox, as its engine's machine sees it."""

    pid: int
    """of its PID 1, as the host counts"""
    cgroups: dict[str, Path]
    """its own, by controller; of version 2 there is one, under "" """

    def left(self) -> list[str]:
        """What is still there of it."""
        ...


class LocalOutside:
    """By the record that `local` keeps."""

    def __init__(self, session: Session) -> None:
        folder = Path(os.environ["HOLDFAST_STATE_DIR"], "sessions", session.key.sandbox_name)
        self.pid = int(json.loads((folder / "record.json").read_text())["pid"])
        self.cgroups = cgroups_of(self.pid, "/holdfast/")

    def left(self) -> list[str]:
        return [str(folder) for folder in self.cgroups.values() if folder.exists()]


class DockerOutside:
    """By what the daemon says."""

    def __init__(self, session: Session) -> None:
        self.found: dict[str, Any] = daemon().inspect_container(container_name(session))
        self.pid = int(self.found["State"]["Pid"])
        self.cgroups = cgroups_of(self.pid, self.found["Id"])
        self.volumes = {mount["Name"] for mount in self.found["Mounts"] if mount["Type"] == "volume"}

    def left(self) -> list[str]:
        """The daemon may take a moment to bury a container whose guest has ended."""
        end = time.monotonic() + _PATIENCE
        while left := self._left():
            if time.monotonic() > end:
                return left
            time.sleep(0.05)
        return []

    def _left(self) -> list[str]:
        left = [str(folder) for folder in self.cgroups.values() if folder.exists()]
        try:
            daemon().inspect_container(self.found["Id"])
            left.append(self.found["Name"])
        except NotFound:
            pass
        volumes = daemon().volumes()["Volumes"] or []
        return left + [each["Name"] for each in volumes if each["Name"] in self.volumes]


def outside(session: Session) -> Outside:
    return DockerOutside(session) if session.effective.engine == "docker" else LocalOutside(session)


def daemon() -> Any:
    """The daemon of the test, by hand."""
    return _client(os.environ["DOCKER_HOST"])


@functools.cache
def _client(host: str) -> Any:
    return docker.APIClient(base_url=host, version="auto", timeout=60)


def containers() -> list[dict[str, Any]]:
    """All containers of this test's owner, in any state."""
    found = []
    for each in daemon().containers(all=True, filters={"label": f"{labels.MANAGED}=1"}):
        if labels.verified(each["Labels"]) is not None:
            with contextlib.suppress(NotFound):
                found.append(daemon().inspect_container(each["Id"]))
    return found


def container_name(session: Session) -> str:
    return session.key.sandbox_name


def cgroups_of(pid: int, mark: str) -> dict[str, Path]:
    """The cgroups of a process whose path has `mark` in it: those that were made for its sandbox."""
    found: dict[str, Path] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        name = controllers.split(",")[0].removeprefix("name=")
        if mark in path and (folder := CGROUPS / name / path.lstrip("/")).exists():
            found[name] = folder
    return found

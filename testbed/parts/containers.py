"""Containers that the testbed keeps running, each with one port on loopback."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from testbed.cache import digest
from testbed.core import TestbedError
from testbed.machine import CommandError
from testbed.parts.base import Bed
from testbed.parts.docker import DockerCli, docker_failed, host_mtu
from testbed.parts.images import KEY_LABEL, Image, forget_replaced, labels_of, remove_images
from testbed.ports import LOOPBACK

NETWORK = "holdfast-testbed"
"""Containers find each other here by name."""


@dataclass(frozen=True)
class Container:
    """A container as it should be: any other of the same name and another key is replaced."""

    part: str
    name: str
    image: Image
    options: tuple[str, ...]
    command: tuple[str, ...]
    inner_port: int
    volume: str
    volume_path: str

    @property
    def key(self) -> str:
        return digest(self.image.full_key, self.options, self.command, self.inner_port, self.volume_path)


class ContainerKeeper:
    """Looks after one container."""

    def __init__(self, bed: Bed, container: Container) -> None:
        self._bed = bed
        self._container = container
        self._docker = DockerCli(bed.machine)

    def inspect(self) -> dict[str, Any] | None:
        return self._docker.inspect("container", [self._container.name]).get(self._container.name)

    def port(self) -> int:
        """The port on loopback of the container that runs, if it is the right one.

        Raises:
            TestbedError: it does not run, or runs from another recipe.
        """
        name, part = self._container.name, self._container.part
        found = self.inspect()
        if found is None or not found["State"]["Running"]:
            raise TestbedError(f"The container {name} is not running", f"call testbed/up {part}")
        if labels_of(found).get(KEY_LABEL) != self._container.key:
            raise TestbedError(f"The container {name} is of another version", f"call testbed/up {part}")
        port = _published_port(found)
        self._bed.ports.check(part, port)
        return port

    def start(self) -> int:
        """Starts the container, the old one if it is right, and returns its port."""
        with contextlib.suppress(TestbedError):
            return self.port()
        container = self._container
        with self._bed.report.step(container.part, f"container {container.name} started"):
            try:
                return self._restart() or self._create()
            except CommandError as error:
                raise docker_failed(error, f"starting {container.name}") from error

    def _restart(self) -> int | None:
        """Starts the stopped container. None if it cannot be: another recipe, or its port was taken."""
        found = self.inspect()
        if found is None:
            return None
        if labels_of(found).get(KEY_LABEL) == self._container.key:
            with contextlib.suppress(CommandError, TestbedError):
                self._docker("start", self._container.name)
                return self.port()
        self.stop()
        self._docker("rm", "--force", self._container.name)
        return None

    def _create(self) -> int:
        container = self._container
        if not self._docker.inspect("network", [NETWORK]):
            mtu = f"com.docker.network.driver.mtu={host_mtu()}"
            self._docker("network", "create", "--opt", mtu, NETWORK)
        port = self._bed.ports.choose(container.part)
        argv = ["run", "--detach", "--name", container.name, "--network", NETWORK]
        argv += [
            "--label",
            f"{KEY_LABEL}={container.key}",
            "--publish",
            f"{LOOPBACK}:{port}:{container.inner_port}",
        ]
        argv += ["--volume", f"{container.volume}:{container.volume_path}", "--log-opt", "max-size=20m"]
        try:
            self._docker(*argv, *container.options, container.image.name, *container.command)
        except CommandError:
            with contextlib.suppress(CommandError):
                self._docker("rm", "--force", container.name)  # `run` leaves what it could create but not start
            raise
        forget_replaced(self._bed)
        return port

    def stop(self) -> None:
        """Asks the container to end and waits for it: one that is killed loses what it had in memory."""
        found = self.inspect()
        if found is not None and found["State"]["Running"]:
            with self._bed.report.step(self._container.part, f"container {self._container.name} stopped"):
                self._docker("stop", "--time", "30", self._container.name, timeout=90)

    def purge(self) -> None:
        with contextlib.suppress(CommandError):
            self._docker("rm", "--force", "--volumes", self._container.name)
        with contextlib.suppress(CommandError):
            self._docker("volume", "rm", self._container.volume)
        with contextlib.suppress(CommandError):
            self._docker("network", "rm", NETWORK)  # fails while the other container is there
        remove_images(self._bed, [self._container.image.name])


def _published_port(found: dict[str, Any]) -> int:
    bindings: dict[str, list[dict[str, str]]] = found["HostConfig"]["PortBindings"]
    return next(int(binding["HostPort"]) for binds in bindings.values() for binding in binds)

"""Docker: the daemon that answers already, else Debian's, started here."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from testbed.core import TestbedError
from testbed.daemon import Daemon, command_of, end, start_time
from testbed.machine import CommandError, Machine, Output
from testbed.parts.base import Part
from testbed.parts.packages import apt_install
from testbed.settings import DockerSettings

SOCKET = Path("/var/run/docker.sock")
_ANSWER_SECONDS = 10.0


class DockerCli:
    """The docker program, with errors that are told apart."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __call__(self, *args: str, timeout: float = 60, env: Mapping[str, str] | None = None) -> Output:
        return self._machine.run(["docker", *args], timeout=timeout, env=env)

    def inspect(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What is there of `names`, by name. `kind`: image, container, volume, network."""
        found: dict[str, dict[str, Any]] = {}
        # A name at a time: a missing one hides the others' answers from some versions of the client.
        for name in names:
            said = self._machine.try_run(["docker", kind, "inspect", name], timeout=_ANSWER_SECONDS)
            if said.code == 0:
                found[name] = cast("list[dict[str, Any]]", json.loads(said.stdout))[0]
            elif "no such" not in said.stderr.lower() and "not found" not in said.stderr.lower():
                raise TestbedError(
                    f"Docker did not answer about {kind} {name}: {said.last_line}", "call testbed/up docker"
                )
        return found


class _Denied(TestbedError):
    """A daemon is there and is not for us."""


class Docker(Part[DockerSettings]):
    name = "docker"

    patience: ClassVar[float] = 30
    """How long a daemon that is not ours may take to answer: it may just be starting."""

    def look(self) -> DockerSettings:
        if self.machine.which("docker") is None:
            raise TestbedError("Docker is not installed", "call testbed/up docker")
        said = self.machine.try_run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=_ANSWER_SECONDS)
        if said.code != 0:
            if "permission denied" in said.stderr:
                raise _Denied(
                    f"The Docker daemon at {self.host()} does not let uid {self.machine.euid} in",
                    "call it as root or as a member of the group docker",
                )
            raise TestbedError(f"No Docker daemon answers: {said.last_line}", "call testbed/up docker")
        return {"host": self.host(), "version": said.stdout.strip()}

    def host(self) -> str:
        """The address that the docker program uses: DOCKER_HOST, else its context's."""
        named = self.machine.environ.get("DOCKER_HOST")
        if named:
            return named
        said = self.machine.try_run(
            ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"],
            timeout=_ANSWER_SECONDS,
        )
        return said.stdout.strip() if said.code == 0 and said.stdout.strip() else f"unix://{SOCKET}"

    def bring_up(self) -> None:
        if self.machine.which("docker") and self.host() != f"unix://{SOCKET}":
            raise TestbedError(
                f"No Docker daemon answers at {self.host()}, which DOCKER_HOST or the docker context names",
                "start that daemon, or unset DOCKER_HOST and choose the default context",
            )
        try:
            self.look()
        except _Denied:
            raise
        except TestbedError:
            self.machine.require_root("Starting the Docker daemon")
        self._refuse_a_silent_daemon()
        # iptables is only recommended by the package, but the daemon does not start without it.
        apt_install(self.bed, self.name, ["docker.io", "iptables", "ca-certificates"])
        with contextlib.suppress(TestbedError):
            self.look()  # a service manager started it
            return
        self.machine.require_disk(Path("/var/lib"), 5, "Docker")
        with self.report.step(self.name, "daemon started"):
            self._heal()
            try:
                self._start()
            except TestbedError:
                # After a hard kill the first start may still stumble over what dies at that moment.
                self._heal()
                self._start()

    def _start(self) -> None:
        program = self.machine.which("dockerd") or "dockerd"
        self._daemon().start(
            [program, "--host", f"unix://{SOCKET}", "--mtu", str(host_mtu())],
            answers=self._answers,
            timeout=60,
            environ=self.machine.environ,
        )

    def _answers(self) -> bool:
        with contextlib.suppress(TestbedError):
            self.look()
            return True
        return False

    def _refuse_a_silent_daemon(self) -> None:
        """A daemon that lives and does not answer is not ours to kill, unless we started it."""
        pid = _pid_in(self._pid_file)
        if pid is None or command_of(pid) != "dockerd":
            return
        if self._daemon().pid == pid:
            self._daemon().stop(grace=15)
            return
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.5)
        raise TestbedError(
            f"A Docker daemon (pid {pid}) runs on this machine and does not answer",
            f"look into its log, or end it (kill {pid}), then call testbed/up again",
        )

    def _heal(self) -> None:
        """Clears what a killed daemon left: a pid file that names another program, and its containerd."""
        pid = _pid_in(self._pid_file)
        if pid is None or command_of(pid) != "dockerd":
            self._pid_file.unlink(missing_ok=True)  # a zombie is reason enough for the daemon not to start
        containerd = self.machine.root / "var/run/docker/containerd/containerd.pid"
        orphan = _pid_in(containerd)
        if orphan is not None and command_of(orphan) == "containerd":
            end(orphan, grace=5)
        containerd.unlink(missing_ok=True)  # of a zombie, too, the daemon says that it is still running

    @property
    def _pid_file(self) -> Path:
        return self.machine.root / "var/run/docker.pid"

    def stop(self) -> None:
        daemon = self._daemon()
        if daemon.pid is None:
            daemon.forget()
            return
        with self.report.step(self.name, "daemon stopped"):
            daemon.stop(grace=30)

    def _daemon(self) -> Daemon:
        return Daemon("dockerd", self.cache.run)

    def address(self, section: DockerSettings) -> str:
        return section["host"]


def docker_failed(error: CommandError, doing: str) -> TestbedError:
    return TestbedError(
        f"Docker failed at {doing}: {error.output.last_line}",
        "see that the disk is not full and the daemon well, then call testbed/up again",
    )


def host_mtu() -> int:
    """The MTU of the default route's interface. A bridge with a larger one loses big packets silently."""
    try:
        routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
        interface = next(route[0] for route in routes if route[1] == "00000000")
        return min(1500, int(Path(f"/sys/class/net/{interface}/mtu").read_text()))
    except (OSError, StopIteration, ValueError, IndexError):
        return 1500


def _pid_in(path: Path) -> int | None:
    """The pid in a pid file, if such a process is alive."""
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    return pid if start_time(pid) else None

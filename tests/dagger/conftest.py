"""The engine `dagger` where the suite for all engines cannot look: the engine, its log, its processes, its death."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from holdfast import engines
from holdfast.engines.dagger.engine import DaggerEngine
from tests.testbed import require

CONTAINER = "holdfast-testbed-dagger"
PATIENCE = 60.0
TLS_PORT = 8443


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def dagger(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaggerEngine]:
    """A fresh engine object on the testbed's engine; its session ends with the test."""
    found = require("dagger")
    monkeypatch.setenv("DAGGER_HOST", found["hosts"]["unix"])
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", found["cli"])
    monkeypatch.setenv("HOLDFAST_ENGINE", "dagger")
    made = DaggerEngine()
    with engines.installed(made):
        yield made
    made.close()


@pytest.fixture
def mark() -> str:
    return f"hfmark{secrets.token_hex(8)}"


def processes(mark: str) -> list[str]:
    """Living processes of this machine with a word in their command line or environment, which nobody else has."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.name != str(os.getpid()):
                text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                if mark.encode() in text:
                    found.append(folder.name)
    return found


def gone(mark: str) -> bool:
    deadline = time.monotonic() + 10
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes(mark)


def elsewhere(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in another process of this environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@dataclass
class OwnEngine:
    """A second engine, which a test may kill."""

    container: Any
    host: str

    @property
    def tls_port(self) -> int:
        """On loopback."""
        self.container.reload()
        return int(self.container.ports[f"{TLS_PORT}/tcp"][0]["HostPort"])

    def kill(self) -> None:
        self.container.kill()

    def start(self) -> None:
        self.container.start()
        self.wait()

    def wait(self) -> None:
        import socket

        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
                try:
                    probe.connect(self.host.removeprefix("unix://"))
                    return
                except OSError:
                    assert time.monotonic() < deadline, self.container.logs(tail=20)
                    time.sleep(0.1)


@pytest.fixture(scope="module")
def own_engine() -> Iterator[OwnEngine]:
    with another_engine() as made:
        yield made


@contextlib.contextmanager
def another_engine(certificates: Path | None = None, config: str = "") -> Iterator[OwnEngine]:
    """Another engine of the testbed's image, made as the testbed made its own; with certificates it has a port too.

    Args:
        config: instead of the default, the text of its TOML file.
    """
    require("dagger")
    client = docker.from_env(environment={**os.environ, "DOCKER_HOST": require("docker")["host"]})
    model = client.containers.get(CONTAINER).attrs
    host, name = model["HostConfig"], f"holdfast-test-{secrets.token_hex(4)}"
    folder = Path("/run") / name
    folder.mkdir()
    arguments = ["--addr", "unix:///run/dagger/engine.sock", "--oci-cni-pool-size", "2"]
    if config:
        (folder / "engine.toml").write_text(config)
        arguments += ["--config", "/run/dagger/engine.toml"]
    if certificates is not None:
        arguments += ["--addr", f"tcp://0.0.0.0:{TLS_PORT}", "--tlscacert", "/run/dagger/ca.pem"]
        arguments += ["--tlscert", "/run/dagger/server.pem", "--tlskey", "/run/dagger/server-key.pem"]
        for file in certificates.glob("*.pem"):
            shutil.copy(file, folder)
    container = client.containers.run(
        model["Image"],
        arguments,
        name=name,
        detach=True,
        cap_add=host["CapAdd"],
        security_opt=host["SecurityOpt"],
        device_cgroup_rules=host["DeviceCgroupRules"],
        cgroupns="host",
        tmpfs=host["Tmpfs"],
        network=host["NetworkMode"],
        ports={f"{TLS_PORT}/tcp": ("127.0.0.1", None)} if certificates else {},
        volumes=["/sys/fs/cgroup:/sys/fs/cgroup:rw", f"{folder}:/run/dagger", f"{name}:/var/lib/dagger"],
        labels={"holdfast.test": json.dumps(name)},
    )
    engine = OwnEngine(container, f"unix://{folder}/engine.sock")
    try:
        engine.wait()
        yield engine
    finally:
        container.remove(force=True, v=True)
        client.volumes.get(name).remove(force=True)
        client.close()
        shutil.rmtree(folder, ignore_errors=True)

"""The recipes of `examples/deploy`, started on the testbed's daemon.

There is neither Compose nor Kubernetes here, so the files are read and their containers are started with the same
options. Three things are the testbed's: the images; the registry, which the engine asks instead of the internet; and
capabilities one by one, since this machine's root has not all that `privileged` means.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.models.containers import Container

from testbed.parts.containers import NETWORK
from testbed.parts.dagger import CONTAINER_NAME
from tests.testbed import require

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples/deploy"
PATIENCE = 90.0
_PREFIX = "holdfast-deploy-"


@contextlib.contextmanager
def deployed(files: str, client: Any, folder: Path) -> Iterator[Deployment]:
    """The services of a recipe, with its engine up. One at a time on this machine: a recipe has fixed addresses."""
    services = pod() if files == "kubernetes.yaml" else merged(*files.split())
    with (Path(tempfile.gettempdir()) / "holdfast-deploy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Deployment(client, {}, _PREFIX, folder).remove()  # of a test that was killed
        made = Deployment(client, services, f"{_PREFIX}{secrets.token_hex(4)}", folder)
        try:
            made.start_engine()
            yield made
        finally:
            made.remove()


def merged(*names: str) -> dict[str, Any]:
    """The services of the files, each on top of the one before, as Compose puts them together."""
    services: dict[str, Any] = {}
    for name in names:
        for service, options in yaml.safe_load((DEPLOY / name).read_text())["services"].items():
            known = services.setdefault(service, {})
            for key, value in options.items():
                known[key] = {**known.get(key, {}), **value} if isinstance(value, dict) else value
    return services


def pod() -> dict[str, Any]:
    """The pod of the manifest, in the words of a compose file."""
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    spec = documents[1]["spec"]["template"]["spec"]
    (resolver, engine), (app,) = spec["initContainers"], spec["containers"]

    def volumes(container: dict[str, Any]) -> list[str]:
        sources = {"engine.json": "./engine.json", "none.conflist": "./none.conflist"}
        return [f"{sources.get(m.get('subPath'), m['name'])}:{m['mountPath']}" for m in container["volumeMounts"]]

    user = app["securityContext"]
    return {
        "app": {
            "environment": {each["name"]: each["value"] for each in app["env"]},
            "user": f"{user['runAsUser']}:{user['runAsGroup']}",
            "volumes": volumes(app),
        },
        "dagger-engine": {
            "command": engine["args"],
            "privileged": engine["securityContext"]["privileged"],
            "volumes": volumes(engine),
            "healthcheck": {"test": ["CMD", *engine["startupProbe"]["exec"]["command"]]},
        },
        "resolver": {
            "command": resolver["command"],
            "capabilities": resolver["securityContext"]["capabilities"]["add"],
        },
    }


@dataclass
class Deployment:
    client: Any
    services: dict[str, Any]
    name: str
    folder: Path

    def image(self, service: str) -> str:
        engine: str = self._model["Config"]["Image"]
        return require("images")["python"] if service == "app" else engine

    @property
    def _model(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.containers.get(CONTAINER_NAME).attrs
        return found

    def volumes(self, service: str) -> list[str]:
        out: list[str] = []
        for volume in self.services[service]["volumes"]:
            source, _, rest = volume.partition(":")
            out.append(f"{self._file(DEPLOY / source) if source.startswith('.') else f'{self.name}-{source}'}:{rest}")
        return out

    def _file(self, path: Path) -> Path:
        """The file itself, but for the engine's settings, which get the testbed's registry."""
        if path.name != "engine.json":
            return path.resolve()
        copy = self.folder / path.name
        theirs = self.client.containers.get(CONTAINER_NAME).exec_run(["cat", "/etc/dagger/engine.json"]).output
        copy.write_text(json.dumps({**json.loads(path.read_text()), "registries": json.loads(theirs)["registries"]}))
        return copy

    def start_engine(self) -> Container:
        options = self.services["dagger-engine"]
        assert options["privileged"]
        assert "ports" not in options
        volumes, healthy = self.volumes("dagger-engine"), options["healthcheck"]["test"][1:]
        if "resolver" in self.services:
            return self.started(self.create(options["command"], volumes, network_mode=self._pod()), healthy)
        ((name, place),) = options["networks"].items()
        (pool,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["networks"][name]["ipam"]["config"]
        pools = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(pool["subnet"], gateway=pool["gateway"])])
        network = self.client.networks.create(f"{self.name}-{name}", ipam=pools)
        engine = self.create(options["command"], volumes, network=NETWORK)
        # Its own network comes first, the testbed's, where the registry is, second.
        self.client.networks.get(NETWORK).disconnect(engine)
        network.connect(engine, ipv4_address=place["ipv4_address"])
        self.client.networks.get(NETWORK).connect(engine)
        return self.started(engine, healthy)

    def _pod(self) -> str:
        """A network that containers share, with what the init container does to it."""
        image, resolver = self.image("dagger-engine"), self.services["resolver"]
        pause = self.client.containers.run(
            image, ["infinity"], entrypoint=["sleep"], name=f"{self.name}-pod", detach=True, network=NETWORK
        )
        self.client.containers.run(
            image,
            resolver["command"],
            entrypoint=[],
            remove=True,
            network_mode=f"container:{pause.id}",
            cap_drop=["ALL"],
            cap_add=resolver["capabilities"],
        )
        return f"container:{pause.id}"

    def create(self, command: list[str], volumes: list[str], **network: str) -> Container:
        """A container of the engine's image, with all that it needs to make others."""
        model = self._model["HostConfig"]
        return self.client.containers.create(
            self.image("dagger-engine"),
            command,
            name=f"{self.name}-engine",
            volumes=[*volumes, "/sys/fs/cgroup:/sys/fs/cgroup:rw"],
            cap_add=model["CapAdd"],
            security_opt=model["SecurityOpt"],
            device_cgroup_rules=model["DeviceCgroupRules"],
            cgroupns="host",
            **network,
        )

    def started(self, engine: Container, healthy: list[str]) -> Container:
        engine.start()
        deadline = time.monotonic() + PATIENCE
        while engine.exec_run(healthy).exit_code != 0:
            assert time.monotonic() < deadline, engine.logs(tail=20).decode()
            time.sleep(0.2)
        return engine

    def remove(self) -> None:
        for each in self.client.containers.list(all=True, filters={"name": self.name}):
            each.remove(force=True)
        for each in self.client.volumes.list(filters={"name": self.name}):
            each.remove(force=True)
        for each in self.client.networks.list(names=[self.name]):
            each.remove()

    def app(self, code: str, **changes: Any) -> str:
        """Run Python code as the application: its user, its environment, its volumes, and no network at all."""
        options = self.services["app"]
        mounts = {ROOT / "src": "/app/src", Path(sysconfig.get_path("purelib")): "/app/site"}
        mounts[Path(require("dagger")["cli"])] = "/usr/local/bin/dagger"
        environment = {**options["environment"], "PYTHONPATH": "/app/src:/app/site"}
        said: bytes = self.client.containers.run(
            self.image("app"),
            ["python3", "-c", code],
            remove=True,
            stderr=True,
            volumes=[*self.volumes("app"), *(f"{source}:{target}:ro" for source, target in mounts.items())],
            environment=environment,
            **{"network_mode": "none", "user": options["user"], **changes},
        )
        return said.decode()

"""`examples/deploy`: the recipes hold what they promise, on real engines that are started as they say."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

import holdfast
from tests.testbed import require

from .deployment import DEPLOY, Deployment, deployed, merged, pod

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

PROBE = """
import os, socket
print(*sorted(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line))
print("socket", os.path.exists("/run/dagger"))
for host in HOSTS:
    try:
        with socket.create_connection((host, 8080), 3) as api:
            api.sendall(b"GET /query HTTP/1.1\\r\\nHost: dagger\\r\\n\\r\\n")
            print(host, api.recv(5).decode())
    except OSError:
        print(host, "no API")
"""


@pytest.fixture
def client() -> Iterator[Any]:
    require("dagger")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the application's container has Python 3.11, and this environment's packages are for another")
    client = docker.DockerClient(require("docker")["host"])
    yield client
    client.close()


@pytest.mark.parametrize("files", ["compose.yaml", "compose.yaml compose.network.yaml", "kubernetes.yaml"])
def test_a_recipe_holds_what_it_promises(files: str, client: Any, tmp_path: Path) -> None:
    with deployed(files, client, tmp_path) as made:
        assert made.app(run("print(6 * 7)")).split() == ["dagger", "42"]
        only_the_applications_group_may_talk_to_the_engine(made)
        doctor_says_what_holds(made)
        the_log_has_no_program(made)
        the_api_is_out_of_reach_even_with_network(made)


def run(code: str, **options: Any) -> str:
    call = f"result = holdfast.run({code!r}, **{options!r})"
    return f"import holdfast; {call}; print(result.engine, result.stdout + result.stderr)"


def is_offline(made: Deployment) -> bool:
    return "--oci-worker-net=cni" in made.services["dagger-engine"]["command"]


def only_the_applications_group_may_talk_to_the_engine(made: Deployment) -> None:
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/dagger/engine.sock'); print('in')"
    assert made.app(connect) == "in\n"
    with pytest.raises(docker.errors.ContainerError, match="Permission denied"):
        made.app(connect, user="10002:10002")


def doctor_says_what_holds(made: Deployment) -> None:
    code = "import sys; sys.argv[1:] = ['doctor', '--json']; from holdfast.cli import main; main()"
    notes = json.loads(made.app(code))["engines"]["dagger"]["notes"]
    assert notes["no network by the guest's filter"] == "holds"
    assert (notes["no network by the engine's CNI"] == "holds: only lo") == is_offline(made)


def the_log_has_no_program(made: Deployment) -> None:
    word = secrets.token_hex(8)
    assert word[::-1] in made.app(run(f"print('{word}'[::-1])"))
    log = made.client.containers.get(f"{made.name}-engine").logs()
    assert b"initializing new session" in log
    assert word.encode() not in log


def the_api_is_out_of_reach_even_with_network(made: Deployment) -> None:
    """At the gateway of all runs, and at the engine's own addresses."""
    own = made.client.containers.get(f"{made.name}-engine").exec_run(["hostname", "-I"]).output.decode().split()
    hosts = sorted({"10.87.0.1", *own})
    made.services["app"]["environment"]["STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"] = "true"
    said = made.app(run(PROBE.replace("HOSTS", repr(hosts)), network=True, timeout=60)).removeprefix("dagger ")
    interfaces, socket, *tried = said.strip().splitlines()
    assert (interfaces.split() == ["lo"]) == is_offline(made)
    assert socket == "socket False"
    assert tried == [f"{host} no API" for host in hosts]


def test_the_same_probe_finds_an_api_that_is_on_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The testbed's engine listens on tcp too, as an engine behind tcp:// does: a run with network is in."""
    found = require("dagger")
    monkeypatch.setenv("DAGGER_HOST", found["hosts"]["unix"])
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", found["cli"])
    monkeypatch.setenv("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT", "true")
    result = holdfast.run(PROBE.replace("HOSTS", "['10.87.0.1']"), network=True, engine="dagger")
    assert result.stdout.splitlines()[-1] == "10.87.0.1 HTTP/", result.stdout + result.stderr


def test_no_image_of_a_recipe_names_a_registry() -> None:
    for options in merged("compose.yaml").values():
        assert re.fullmatch(r"\$\{\w+:\?.+\}", options["image"])
    images = re.findall(r"^ +image: (\S+)", (DEPLOY / "kubernetes.yaml").read_text(), re.MULTILINE)
    assert len(images) == 3
    assert not any("/" in image for image in images)


def test_kubernetes_says_the_same() -> None:
    config, deployment, policy = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    for name in ("none.conflist", "engine.json"):
        assert json.loads(config["data"][name]) == json.loads((DEPLOY / name).read_text())
    wanted, found = merged("compose.yaml"), pod()
    command = [word for word in wanted["dagger-engine"]["command"] if not word.startswith("--network")]
    assert found["dagger-engine"]["command"] == command
    assert found["app"]["environment"] == wanted["app"]["environment"]
    assert found["app"]["user"] == wanted["app"]["user"]
    for service in ("app", "dagger-engine"):
        paths = [{volume.split(":")[1] for volume in services[service]["volumes"]} for services in (wanted, found)]
        assert paths[0] == paths[1]
    template = deployment["spec"]["template"]
    everything = [*template["spec"]["initContainers"], *template["spec"]["containers"]]
    assert not any("ports" in container for container in everything)
    used = {mount["name"] for container in everything for mount in container.get("volumeMounts", [])}
    assert used == {volume["name"] for volume in template["spec"]["volumes"]}
    assert not template["spec"]["automountServiceAccountToken"]
    assert policy["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert "169.254.0.0/16" in policy["spec"]["egress"][-1]["to"][0]["ipBlock"]["except"]
    assert "ingress" not in policy["spec"]

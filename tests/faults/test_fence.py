"""A sandbox with network reaches the world, and neither its neighbours nor the machine beneath it (T53)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import docker
import pytest

from holdfast import aio, errors
from holdfast.code.keys import Namespace, SessionKey
from holdfast.engines.docker import fence
from tests.faults.host import Box, box
from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.on("docker", "docker-strict")]

CONNECT = """
import json, socket, sys
found = {}
for address in json.loads(sys.argv[1]):
    try:
        socket.create_connection(address, 5).close()
        found[address[0]] = "reached"
    except OSError as error:
        found[address[0]] = type(error).__name__
print(json.dumps(found))
"""
# A datagram's connect asks the kernel for the way, and sends nothing.
WAYS = """
import json, socket, sys
found = {}
for host in json.loads(sys.argv[1]):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        try:
            made.connect((host, 9))
            found[host] = "way"
        except OSError as error:
            found[host] = type(error).__name__
print(json.dumps(found))
"""
SERVE = "import socket, time; made = socket.create_server(('0.0.0.0', 8000)); print('up'); time.sleep(300)"


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT", "true")
    client: Any = docker.DockerClient(require("docker")["host"])
    yield client
    client.close()


@pytest.fixture
def machine(daemon: Any) -> Iterator[tuple[str, int]]:
    """A server on the daemon's machine, where the sandboxes' bridge ends."""
    config = daemon.networks.get("bridge").attrs["IPAM"]["Config"][0]
    with socket.create_server((config.get("Gateway") or "172.17.0.1", 0), backlog=16) as server:
        yield server.getsockname()


async def seen(sandbox: Box, code: str, what: list[Any]) -> dict[str, str]:
    result = await sandbox.exec(["python3", "-c", code, json.dumps(what)], timeout=60)
    assert result.ok, result.as_tool()
    found: dict[str, str] = json.loads(result.stdout)
    return found


def address_of(sandbox: Box, daemon: Any) -> str:
    found = daemon.containers.get(sandbox.session.key.sandbox_name)
    return str(found.attrs["NetworkSettings"]["Networks"]["bridge"]["IPAddress"])


async def test_t53_neighbours_and_the_machine_are_closed_unless_the_operator_opens_them(
    machine: tuple[str, int], daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_NETWORK_DENY", "none")
    async with box(network=True) as neighbour:  # itself not closed, so that it can answer
        serving = await neighbour.session.start(["python3", "-u", "-c", SERVE])
        await neighbour.said(serving, b"up")
        there = (address_of(neighbour, daemon), 8000)
        async with box(network=True) as sandbox:
            assert await seen(sandbox, CONNECT, [machine, there]) == {machine[0]: "reached", there[0]: "reached"}
            assert "network_deny" not in sandbox.session.effective.limits
        monkeypatch.delenv("HOLDFAST_NETWORK_DENY")
        async with box(network=True) as sandbox:
            assert await seen(sandbox, CONNECT, [machine, there]) == {
                machine[0]: "PermissionError",
                there[0]: "PermissionError",
            }
            assert "10.0.0.0/8" in sandbox.session.effective.limits["network_deny"]
            assert "routes" in sandbox.session.effective.held_by["network_deny"]
        monkeypatch.setenv("HOLDFAST_NETWORK_ALLOW", f"{machine[0]}/32")
        async with box(network=True) as sandbox:
            assert await seen(sandbox, CONNECT, [machine, there]) == {
                machine[0]: "reached",
                there[0]: "PermissionError",
            }


async def test_t53_metadata_and_private_nets_have_no_way_and_the_world_has_one() -> None:
    hosts = ["169.254.169.254", "10.1.2.3", "100.64.0.1", "172.31.0.1", "192.168.1.1", "192.0.2.1"]
    async with box(network=True) as sandbox:
        found = await seen(sandbox, WAYS, hosts)
        assert found.pop("192.0.2.1") == "way"
        assert set(found.values()) == {"PermissionError"}
        # Nobody inside may change that: a route is a right that no sandbox has.
        status = (sandbox.path("proc/1/status")).read_text()
        rights = int(status.partition("CapBnd:")[2].split()[0], 16)
        assert not rights >> 12 & 1, "CAP_NET_ADMIN"


async def test_t53_a_run_is_closed_too(machine: tuple[str, int]) -> None:
    result = await aio.run(CONNECT, args=[json.dumps([machine])], network=True)
    assert json.loads(result.stdout) == {machine[0]: "PermissionError"}
    assert "169.254.0.0/16" in result.limits["network_deny"]


async def test_what_cannot_be_closed_is_not_opened(daemon: Any, monkeypatch: pytest.MonkeyPatch, workflow: str) -> None:
    """The helper runs, and does not say what it should."""
    monkeypatch.setattr(fence, "_DONE", b"something else")
    with pytest.raises(errors.LimitsNotAvailable, match=r"could not close private networks.*HOLDFAST_NETWORK_DENY"):
        async with aio.open_session(network=True, workflow=workflow):
            pytest.fail("it is open")
    assert not await aio.list_sessions()
    name = SessionKey(Namespace.WORKFLOW, workflow).sandbox_name
    for gone in (name, f"{name}-fence"):
        with pytest.raises(docker.errors.NotFound):
            daemon.containers.get(gone)
    async with box():  # without network nothing is to be closed
        pass


async def test_nothing_stays_of_the_helper(daemon: Any) -> None:
    async with box(network=True) as sandbox:
        name = sandbox.session.key.sandbox_name
        mounts = daemon.containers.get(name).attrs["Mounts"]
        (volume,) = [one["Name"] for one in mounts if one["Type"] == "volume"]
        assert volume in volumes(daemon), "it went with the helper"
        with pytest.raises(docker.errors.NotFound):
            daemon.containers.get(f"{name}-fence")
    with anyio.fail_after(10):
        while volume in volumes(daemon):
            await anyio.sleep(0.1)


def volumes(daemon: Any) -> set[str]:
    return {one.name for one in daemon.volumes.list()}

"""The engine `docker` where the suite for all engines cannot look: the daemon, its other clients, its containers."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import docker
import pytest

from holdfast import aio, errors
from holdfast.abc import Capability
from holdfast.engines.docker import images, labels, seccomp
from holdfast.engines.docker.engine import DockerEngine
from tests.testbed import require

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The testbed's daemon; afterwards this test's owner has no container on it."""
    found = require("docker")
    require("images")
    monkeypatch.setenv("DOCKER_HOST", found["host"])
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    client = docker.from_env()
    yield client
    # The plain list: the other one looks at each container again, and those of other tests come and go.
    left = [each["Names"] for each in client.api.containers(all=True) if labels.verified(each["Labels"]) is not None]
    client.close()
    assert not left


def container_of(daemon: Any, box: aio.Session) -> Any:
    return daemon.containers.get(box.key.sandbox_name)


async def test_container_is_what_the_profile_says(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PROFILE", "strict")
    async with aio.open_session(engine="docker") as box:
        found = container_of(daemon, box).attrs
        host, limits = found["HostConfig"], box.effective.limits
        assert (host["NetworkMode"], host["ReadonlyRootfs"], host["Privileged"]) == ("none", True, False)
        assert (host["Binds"], host["AutoRemove"], host["LogConfig"]["Type"]) == (None, True, "none")
        assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
        assert host["Memory"] == host["MemorySwap"] > (limits["memory_mb"] + limits["workspace_mb"]) << 20
        assert host["NanoCpus"] or host["CpuQuota"] == limits["cpu_millicores"] * 100
        assert "no-new-privileges:true" in host["SecurityOpt"]
        status = (await box.exec("cat /proc/self/status")).stdout
        assert "CapEff:\t0000000000000000" in status and "Seccomp_filters:\t2" in status


async def test_killed_container_is_lost_and_the_next_opening_makes_a_new_one(daemon: Any) -> None:
    workflow = secrets.token_hex(8)
    async with aio.open_session(engine="docker", workflow=workflow) as box:
        await box.write("kept", "x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_kill_soon, daemon, box)
            with pytest.raises(errors.SessionLost):
                await box.exec("sleep 60", timeout=70)
        with pytest.raises(errors.SessionError):
            await box.exec("true")
    async with aio.open_session(engine="docker", workflow=workflow) as again:
        assert again.created
        assert not (await again.list()).entries
        await again.close()


async def _kill_soon(daemon: Any, box: aio.Session) -> None:
    while not await box.processes():
        await anyio.sleep(0.01)
    await anyio.to_thread.run_sync(container_of(daemon, box).kill)


async def test_paused_container_has_its_own_error(daemon: Any) -> None:
    async with aio.open_session(engine="docker") as box:
        container_of(daemon, box).pause()
        await box.release()
        with pytest.raises(errors.SessionLost, match="paused"):
            await box.exec("true")
        container_of(daemon, box).unpause()
        assert (await box.exec("true")).ok


async def test_image_must_be_allowed_and_there(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ImageNotAllowed, match="allowed are"):
        await aio.run("print(1)", engine="docker", image="holdfast-testbed/empty:1")
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", "python:3.11-slim, localhost:1/no/such:1")
    with pytest.raises(errors.ImageNotFound):
        await aio.run("print(1)", engine="docker", image="localhost:1/no/such:1")
    assert (await aio.run("print(1)", engine="docker", image="docker.io/library/python:3.11-slim")).stdout == "1\n"


async def test_image_without_a_shell_has_files_and_execs(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = require("images")["empty"]
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", empty)
    async with aio.open_session(engine="docker", image=empty) as box:
        await box.write("a/b", "x")
        assert [entry.path for entry in await box.list(recursive=True)] == ["a", "a/b"]
        assert (await box.exec(["/.holdfast/guest", "nonsense"])).exit_code == 2
        with pytest.raises(errors.CommandNotFound):
            await box.exec("echo a shell line")
        await box.delete("a", recursive=True)


async def test_stranger_with_our_name_is_refused_and_left_alone(daemon: Any) -> None:
    workflow = secrets.token_hex(8)
    async with aio.open_session(engine="docker", workflow=workflow) as box:
        name = box.key.sandbox_name
        await box.close()
    stranger = daemon.containers.create("python:3.11-slim", ["sleep", "60"], name=name, labels={labels.MANAGED: "1"})
    try:
        with pytest.raises(errors.EngineFailed, match="HOLDFAST_OWNER_KEY"):
            async with aio.open_session(engine="docker", workflow=workflow):
                pass
        assert await aio.sweep(engine="docker") == 0
        stranger.reload()
    finally:
        stranger.remove(force=True)


async def test_never_started_container_is_swept_when_it_is_old(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engines.docker import engine as module

    async with aio.open_session(engine="docker") as box:
        marks = container_of(daemon, box).labels
    made = daemon.containers.create("python:3.11-slim", ["true"], labels=marks)
    assert await aio.sweep(engine="docker") == 0
    monkeypatch.setattr(module, "_NEVER_STARTED_SECONDS", 0.0)
    assert await aio.sweep(engine="docker") == 1
    with pytest.raises(docker.errors.NotFound):
        made.reload()


async def test_daemon_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engines.docker import daemon as module

    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        deaf = DockerEngine()
        call = module.Daemon.call
        monkeypatch.setattr(module.Daemon, "call", lambda self, what, work, deadline=0: call(self, what, work, 1.0))
        status = await deaf.check()
    assert not status.available and "did not answer" in status.reason
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    status = await DockerEngine().check()
    assert not status.available and "No such file" in status.reason and status.fix


async def test_daemon_over_tcp(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Relay(os.environ["DOCKER_HOST"].removeprefix("unix://")) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        engine = DockerEngine()
        assert Capability.CODE in (await engine.check()).capabilities
        from holdfast.engines import installed

        with installed(engine):
            async with aio.open_session(engine="docker") as box:
                assert (await box.exec("echo over tcp")).stdout == "over tcp\n"
                await box.write("big", b"x" * 3_000_000)
                assert len(await box.read("big")) == 3_000_000


async def test_client_in_a_container_that_has_only_the_socket(daemon: Any) -> None:
    """No path of the client's machine means anything to the daemon: a sandbox must not need one."""
    archive = subprocess.run(
        ["tar", "-C", str(ROOT), "-cf", "-", "src", "-C", str(Path(sys.prefix) / "lib/python3.11"), "site-packages"],
        capture_output=True, check=True, timeout=100,
    ).stdout  # fmt: skip
    code = (
        "import holdfast, json\n"
        "with holdfast.open_session(engine='docker', workflow='inside') as box:\n"
        "    box.write('a', 'from inside')\n"
        "    ran = holdfast.run('print(1)', engine='docker')\n"
        "    print(json.dumps([box.created, box.exec('cat a').stdout, ran.stdout]))\n"
        "    box.close()\n"
    )
    client = daemon.containers.create(
        "python:3.11-slim",
        ["python3", "-c", code],
        environment={"PYTHONPATH": "/src:/site-packages", "HOLDFAST_OWNER_KEY": os.environ["HOLDFAST_OWNER_KEY"]},
        volumes={"/var/run/docker.sock": {"bind": "/var/run/docker.sock"}},
        network_mode="none",
    )
    try:
        client.put_archive("/", archive)
        client.start()
        ended = client.wait(timeout=100)
        assert ended["StatusCode"] == 0, client.logs().decode()
        assert json.loads(client.logs(stderr=False)) == [True, "from inside", "1\n"]
    finally:
        client.remove(force=True)


class Relay:
    """A tcp port on loopback that leads to a unix socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return int(self._listener.getsockname()[1])

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()


@pytest.mark.parametrize(
    ("spelling", "same"),
    [("python", "docker.io/library/python:latest"), ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
     ("library/python", "docker.io/library/python:latest"), ("localhost:5000/a", "localhost:5000/a:latest"),
     ("ghcr.io/a/b:1", "ghcr.io/a/b:1"), ("a/b", "docker.io/a/b:latest")],
)  # fmt: skip
def test_one_image_has_one_name(spelling: str, same: str) -> None:
    assert images.normalise(spelling) == images.normalise(same) == same


@pytest.mark.parametrize(
    "bad", ["", "Python", "a b", "python:3.11\n", "../x", "-x", "d34db33fd34d", "sha256:" + "a" * 64]
)
def test_what_is_no_image_is_refused(bad: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        images.normalise(bad)


def test_labels_are_signed() -> None:
    marks = {labels.PREFIX + "managed": "1", labels.PREFIX + "name": "x"}
    assert labels.verified(marks) is None
    signed = {**marks, labels.PREFIX + "signature": labels._sign(marks)}
    assert labels.verified(signed) == {"managed": "1", "name": "x"}
    assert labels.verified({**signed, labels.PREFIX + "name": "y"}) is None
    assert labels.verified({**signed, "of.the.image": "z"}) == {"managed": "1", "name": "x"}


def test_seccomp_profile_opens_networks_only_on_request() -> None:
    closed, opened = (json.loads(seccomp.profile("amd64", network)) for network in (False, True))
    families = [
        {rule["args"][0]["value"] for rule in each["syscalls"] if "socket" in rule["names"]}
        for each in (closed, opened)
    ]
    assert families == [{1}, {1, 2, 10, 16}]
    allowed = {name for rule in closed["syscalls"] for name in rule["names"] if rule["action"] == "SCMP_ACT_ALLOW"}
    assert not allowed & {"ptrace", "io_uring_setup", "bpf", "mount", "unshare", "keyctl", "userfaultfd", "socketcall"}

"""The engine `docker` where the suite for all engines cannot look: the daemon, its other clients, its containers."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import aio, errors
from holdfast.abc import Capability
from holdfast.engines.docker import labels, seccomp
from holdfast.engines.docker.engine import DockerEngine
from tests.testbed import require

from .daemons import container_of, relay, socket_of

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


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


async def test_what_root_may_do_in_the_profile_standard(daemon: Any) -> None:
    async with aio.open_session(engine="docker") as box:
        status = (await box.exec("cat /proc/self/status; id -u")).stdout
        assert "CapEff:\t00000000000000fb" in status, "chown dac_override fowner fsetid kill setgid setuid"
        assert "NoNewPrivs:\t1" in status and status.endswith("\n0\n")
        other = "import os; os.chown('.', 1000, 1000); os.setgid(1000); os.setuid(1000); print(os.getuid())"
        assert (await box.exec(["python3", "-c", other])).stdout == "1000\n"
        assert not (await box.exec("mount -t tmpfs x /mnt")).ok
        assert container_of(daemon, box).attrs["HostConfig"]["Binds"] is None


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


async def test_the_makers_own_way_in_can_break_like_any_other(daemon: Any) -> None:
    """PID 1 hangs up on a host that talks nonsense; the next call comes in by an exec, and programs start as before."""
    async with aio.open_session(engine="docker") as box:
        await box.write("kept", "x")
        await (await box.guest()).connection.send(b"\xff" * 9)
        with anyio.fail_after(60), pytest.raises(errors.SessionLost):
            await box.exec("sleep 50")
        assert await box.read("kept") == b"x"
        async with anyio.create_task_group() as tasks:
            for _ in range(12):  # more than there are supervisors: new ones are started
                tasks.start_soon(box.exec, "sleep 0.2")
        assert (await box.exec("echo fine; readlink /proc/self/fd/0")).stdout == "fine\n/dev/null\n"


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


async def test_another_image_does_not_change_a_session_and_that_is_said(daemon: Any) -> None:
    workflow = secrets.token_hex(8)
    async with aio.open_session(engine="docker", workflow=workflow, image="python:3.11-slim") as first:
        for image, changed in (("ubuntu:22.04", True), ("python:3.11-slim", False)):
            async with aio.open_session(engine="docker", workflow=workflow, image=image) as again:
                assert (again.created, again.changed) == (False, changed)
                assert again.effective.image == "python:3.11-slim", "it is shown as it is"
        await first.close()


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


async def test_daemon_over_tcp(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay(socket_of(daemon)) as port:
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


def test_seccomp_profile_opens_networks_only_on_request() -> None:
    closed, opened = (json.loads(seccomp.profile("amd64", network)) for network in (False, True))
    families = [
        {rule["args"][0]["value"] for rule in each["syscalls"] if "socket" in rule["names"]}
        for each in (closed, opened)
    ]
    assert families == [{1}, {1, 2, 10, 16}]
    allowed = {name for rule in closed["syscalls"] for name in rule["names"] if rule["action"] == "SCMP_ACT_ALLOW"}
    assert not allowed & {"ptrace", "io_uring_setup", "bpf", "mount", "unshare", "keyctl", "userfaultfd", "socketcall"}

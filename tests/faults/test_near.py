"""The short way to a guest on the daemon's own machine: taken where it leads to the guest, and to nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engines.docker import near
from holdfast.engines.docker.container import SOCKET
from tests.faults.conftest import far
from tests.faults.host import Box, box, look_at
from tests.faults.outside import DockerOutside

pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.timeout(60),
    pytest.mark.on("docker"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the processes of containers"),
]


def container_of(sandbox: Box) -> str:
    assert isinstance(sandbox.outside, DockerOutside)
    return str(sandbox.outside.found["Id"])


def dials(sandbox: Box) -> list[str]:
    """What the daemon has started inside for clients."""
    listed = sandbox.path("proc").iterdir()
    pids = [int(entry.name) for entry in listed if entry.name.isdigit()]
    return [str(pid) for pid in pids if b"\0dial\0" in _command(sandbox, pid)]


def _command(sandbox: Box, pid: int) -> bytes:
    try:
        return sandbox.path(f"proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def reached(sandbox: Box, pid: int | None = None, container: str | None = None, path: str = SOCKET) -> bool:
    stream = await near.dial(sandbox.pid if pid is None else pid, container or container_of(sandbox), path)
    if stream is not None:
        await stream.aclose()
    return stream is not None


async def test_clients_on_the_daemon_s_machine_go_straight_to_the_guest(
    workflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with box(workflow=workflow) as sandbox, box(workflow=workflow) as second:
        await second.works()
        assert not dials(sandbox)
        monkeypatch.setattr(near, "dial", far)
        async with box(workflow=workflow) as third:
            await third.works()
            assert len(dials(sandbox)) == 1
        await sandbox.session.close()


async def test_only_the_guest_of_this_very_container_is_reached() -> None:
    async with box() as sandbox, box() as other:
        assert await reached(sandbox)
        assert not await reached(sandbox, pid=other.pid)
        assert not await reached(sandbox, pid=os.getpid())
        assert not await reached(sandbox, pid=0)
        assert not await reached(sandbox, container=container_of(other))
        assert not await reached(sandbox, path="/.holdfast/guest")
        assert not await reached(sandbox, path="/nothing/here")


LISTEN = """
import os, socket, sys, time
os.rename("/.holdfast-run/sock", "/.holdfast-run/old")
listener = socket.socket(socket.AF_UNIX)
listener.bind("/.holdfast-run/sock")
listener.listen()
print("up", flush=True)
time.sleep(60)
"""


async def test_what_programs_put_in_its_place_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as of_the_host:
        of_the_host.bind(f"{tmp_path}/sock")
        of_the_host.listen()
        async with box() as sandbox:
            assert (await sandbox.exec(f"ln -s {tmp_path}/sock /.holdfast-run/link; ln -s {tmp_path} /folder")).ok
            assert not await reached(sandbox, path="/.holdfast-run/link")
            assert not await reached(sandbox, path="/folder/sock")
            posing = await sandbox.session.start(["python3", "-c", LISTEN], timeout=60)
            await sandbox.said(posing, b"up")
            assert not await reached(sandbox)
            assert await reached(sandbox, path="/.holdfast-run/old")
            await posing.kill()
        of_the_host.setblocking(False)
        with pytest.raises(BlockingIOError):
            of_the_host.accept()


ASK = """
import sys, anyio
from holdfast.engines.docker import near
print(anyio.run(near.dial, int(sys.argv[1]), sys.argv[2], sys.argv[3]))
"""


async def test_who_is_not_root_finds_nothing() -> None:
    async with box() as sandbox:
        words = [sys.executable, "-c", ASK, str(sandbox.pid), container_of(sandbox), SOCKET]
        as_root = subprocess.run(words, capture_output=True, text=True, check=True)
        assert "SocketStream" in as_root.stdout
        code = "import os, sys; os.setgid(65534); os.setuid(65534); " + ASK.strip().replace("\n", "; ")
        words[2] = code.replace("import sys, anyio; from", "import anyio; from")
        refused = subprocess.run(words, capture_output=True, text=True, check=False)
        assert refused.stdout in ("None\n", "") and "SocketStream" not in refused.stdout
        assert look_at(sandbox.pid) is not None

"""No network: nothing outside is reached, no name is asked for, and there is no interface to do it with (T50, T51)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast import aio
from tests.faults.host import box, every

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]

PROBE = """
import json, socket, subprocess, sys
port, elsewhere = int(sys.argv[1]), json.loads(sys.argv[2])
found = {}
def attempt(name, work):
    try:
        found[name] = str(work())
    except OSError as error:
        found[name] = type(error).__name__
def reach(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(b"x")
        return "reached"
for name, address in {"own": ("127.0.0.1", port), **elsewhere}.items():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        attempt(f"{name} {kind.name}", lambda: reach(socket.AF_INET, kind, tuple(address)))
attempt("six", lambda: reach(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port)))
if elsewhere:
    attempt("name", lambda: socket.getaddrinfo("holdfast.invalid", 80))
line = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
found["bash"] = subprocess.run(["bash", "-c", line], capture_output=True, text=True).stdout.strip()
left, right = socket.socketpair()
left.send(b"x")
found["pair"] = right.recv(1).decode()
print(json.dumps(found))
"""

# Addresses that lead nowhere, should they ever be reached: one for documentation, the metadata service of a cloud that
# this is not, and Docker's own bridge.
ELSEWHERE = json.dumps({"world": ("192.0.2.1", 53), "cloud": ("169.254.169.254", 80), "bridge": ("172.17.0.1", 53)})
NOWHERE = json.dumps({})


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server on this machine's loopback."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield server.getsockname()[1]


@every()
async def test_t50_a_session_reaches_nothing(port: int) -> None:
    async with box() as sandbox:
        result = await sandbox.exec(["python3", "-c", PROBE, str(port), ELSEWHERE], timeout=50)
        found = json.loads(result.stdout)
        assert found.pop("pair") == "x"
        assert not {said for said in found.values() if said not in ("", "PermissionError", "OSError", "gaierror")}, (
            found
        )
        interfaces = sandbox.path("proc/1/net/dev").read_text().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in interfaces] in ([], ["lo"])


async def test_t50_a_run_reaches_nothing(port: int) -> None:
    result = await aio.run(PROBE, args=[str(port), ELSEWHERE], timeout=50)
    found = json.loads(result.stdout)
    assert found.pop("pair") == "x"
    assert not {said for said in found.values() if said not in ("", "PermissionError", "OSError", "gaierror")}, found


@pytest.mark.on("local")
def test_t50_the_same_probe_reaches_from_the_host(port: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, str(port), NOWHERE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["own SOCK_STREAM"], found["own SOCK_DGRAM"], found["bash"]) == ("reached",) * 3

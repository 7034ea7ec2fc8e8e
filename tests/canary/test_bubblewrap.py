from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import require

pytestmark = pytest.mark.engines


def sandbox(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with the host's /usr and nothing else of it, unless `options` say more."""
    argv = [require("bubblewrap")["path"], "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
    for link in ("bin", "lib", "lib64"):
        argv += ["--symlink", f"usr/{link}", f"/{link}"]
    argv += ["--proc", "/proc", "--dev", "/dev", *options, "bash", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server on the host's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_there_is_no_network(listener: int) -> None:
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{listener} && echo connected"
    assert sandbox(connect).returncode != 0
    assert sandbox(connect, "--share-net").stdout == "connected\n"


def test_the_home_of_the_host_is_not_visible() -> None:
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".holdfast-canary-") as directory:
        secret = Path(directory) / "secret"
        secret.write_text("seen")
        read = f"cat {secret}"
        assert sandbox(read).stdout == ""
        assert sandbox(read, "--ro-bind", directory, directory).stdout == "seen"


def test_the_processes_of_the_host_are_not_visible() -> None:
    count = "set -- /proc/[0-9]*; echo $#"
    assert int(sandbox(count).stdout) <= 2
    outside = subprocess.run(["bash", "-c", count], capture_output=True, text=True, check=True)
    assert int(outside.stdout) > 2

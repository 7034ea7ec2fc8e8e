"""The adapters with their real frameworks, on real engines; afterwards nothing of a test may be left."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator

import docker
import pytest

from tests.conformance import host
from tests.integration.daemons import ours
from tests.testbed import require

_PATIENCE = 5.0
"""seconds in which a daemon must have removed what ended"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mark() -> str:
    """A word that the programs of a test carry in their environment, so that they are found from outside."""
    return f"hfmark{secrets.token_hex(8)}"


@pytest.fixture(params=["local", "docker"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, mark: str) -> Iterator[str]:
    """The name of an engine that is there, and that `auto` takes."""
    name = str(request.param)
    require("bubblewrap" if name == "local" else "images")
    monkeypatch.setenv("HOLDFAST_ENGINE", name)
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    if name == "docker":
        monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as state:
        monkeypatch.setenv("HOLDFAST_STATE_DIR", state)
        yield name
        until = time.monotonic() + _PATIENCE
        while (left := _left(name, mark, state)) and time.monotonic() < until:
            time.sleep(0.05)
    assert not left, f"left behind: {left}"


def _left(engine: str, mark: str, state: str) -> list[str]:
    left = [*host.processes(mark), *host.processes(state)]
    if engine == "docker":
        client = docker.from_env()
        left += [str(each["Names"]) for each in ours(client)]
        client.close()
    return left

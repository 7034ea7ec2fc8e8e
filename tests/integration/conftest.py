from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from tests.testbed import require

from .daemons import ours


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state folder of the test's own. Short: a unix socket lies in it."""
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as folder:
        monkeypatch.setenv("HOLDFAST_STATE_DIR", folder)
        yield folder


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The testbed's daemon; afterwards this test's owner has no container on it."""
    found = require("docker")
    require("images")
    monkeypatch.setenv("DOCKER_HOST", found["host"])
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    client = docker.from_env()
    yield client
    left = [each["Names"] for each in ours(client)]
    client.close()
    assert not left

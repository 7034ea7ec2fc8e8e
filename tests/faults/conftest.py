"""The fault catalogue, on `local` and on `docker`. T-numbers are those of the threat model; each negative has its twin.

A test runs on each engine of `on`; without that mark on `local` and on `docker` in the profile `standard`. What a
profile changes is marked with `every`.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from holdfast.engines.docker import near
from tests.testbed import require

USUAL = ("local", "docker")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on(*engines): the engines of this test: local, docker, docker-strict")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("on")
    metafunc.parametrize("engine", mark.args if mark else USUAL, indirect=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of this test: what is opened without naming one, here and in other processes, is opened on it."""
    name, _, profile = str(request.param).partition("-")
    # An owner of its own: tests that run at the same time share a daemon, and all engines are asked for sessions.
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    if name == "docker":
        monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
        require("images")
        if profile == "strict":  # both ways to a guest are tried: the short one with the other profile
            monkeypatch.setattr(near, "dial", far)
    else:
        require("bubblewrap")
    monkeypatch.setenv("HOLDFAST_PROFILE", profile or "standard")
    monkeypatch.setenv("HOLDFAST_ENGINE", name)
    return name


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state folder of the test's own; its path is short, for a unix socket lies in it."""
    folder = tempfile.mkdtemp(dir="/tmp", prefix="hf")
    monkeypatch.setenv("HOLDFAST_STATE_DIR", folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def far(*_: object) -> None:
    """For `near.dial`: as if the client were on another machine than the daemon."""


@pytest.fixture
def workflow() -> str:
    """The name of a workflow that no other test has."""
    return f"wf-{secrets.token_hex(8)}"

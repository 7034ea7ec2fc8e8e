"""One suite for every engine. Each test runs on each engine, under asyncio and under trio.

To add an engine, add it to ENGINES. A test whose engine is missing is skipped with the engine's own reason, and fails
with CI=true. A test that needs what an engine declares it cannot do (`requires`) is skipped on that engine.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import aio, engines
from holdfast.abc import Capability, Engine, EngineStatus, SandboxSpec
from holdfast.engines.fake import FakeEngine
from tests.testbed import require, without

from . import host
from .programs import PROBES, install

ENGINES = [
    pytest.param("local", marks=pytest.mark.engines),
    pytest.param("docker", marks=pytest.mark.engines),
    pytest.param("docker-strict", marks=pytest.mark.engines),
    pytest.param("dagger", marks=pytest.mark.engines),
    pytest.param("fake"),
]

Open = Callable[..., AbstractAsyncContextManager[aio.Session]]
ProbeArgv = Callable[..., list[str]]


async def _far(*_: object) -> None:
    pass


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requires(*capabilities): what the engine must be able to guarantee")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A container takes its time: each profile of Docker is tried under one event loop, and both loops are tried."""
    items[:] = [item for item in items if _applies(item)]


def _applies(item: pytest.Item) -> bool:
    if "dagger" in item.name:  # it has runs only
        return not {"open_session", "box"} & set(getattr(item, "fixturenames", ()))
    return not item.name.count("trio-docker]") and not item.name.count("asyncio-docker-strict")


@pytest.fixture
def mark() -> str:
    """A word that every process of this test's sandboxes carries."""
    return f"hfmark{secrets.token_hex(8)}"


@pytest.fixture
def state() -> Iterator[Path]:
    """A private state folder. Short: the path of a unix socket has 107 characters."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=ENGINES)
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, EngineStatus]]:
    """The engine under test and what it says of itself; ends the test if that is not enough for it."""
    name, _, profile = request.param.partition("-")
    if profile:
        monkeypatch.setenv("HOLDFAST_PROFILE", profile)
        # Both ways to a guest are tried: here the one through the daemon, as from another machine.
        monkeypatch.setattr("holdfast.engines.docker.near.dial", _far)
    if name == "dagger":
        settings = require("dagger")
        monkeypatch.setenv("DAGGER_HOST", settings["hosts"]["unix"])
        monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", settings["cli"])
    # An owner of its own: tests that run at the same time share a daemon, and must not see each other's sessions.
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    with ExitStack() as stack:
        if request.param == "fake":
            install(stack.enter_context(FakeEngine()))
        made = engines.engine(name)
        status = anyio.run(made.check)
        if not status.available:
            without(f"{made.name}: {status.reason}. {status.fix}")
        wanted = {capability for one in request.node.iter_markers("requires") for capability in one.args}
        if missing := sorted(wanted - status.capabilities):
            pytest.skip(f"{made.name} does not claim: {', '.join(missing)}")
        yield made, status


@pytest.fixture
def engine(
    checked: tuple[Engine, EngineStatus], monkeypatch: pytest.MonkeyPatch, mark: str, state: Path
) -> Iterator[Engine]:
    """The engine under test; afterwards nothing of its sandboxes may be left."""
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(state))
    made = checked[0]
    names = _names(made, monkeypatch)
    yield made
    left = host.left(made, names, mark, state)
    assert not left, f"left behind: {left}"


def _names(made: Engine, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all sandboxes that the test makes, as it makes them."""
    names: set[str] = set()
    create, once = made.create, made.once

    async def noting_create(spec: SandboxSpec) -> Any:
        names.add(spec.name)
        return await create(spec)

    def noting_once(spec: SandboxSpec) -> Any:
        names.add(spec.name)
        return once(spec)

    monkeypatch.setattr(made, "create", noting_create)
    monkeypatch.setattr(made, "once", noting_once)
    return names


@pytest.fixture
def open_session(engine: Engine, mark: str) -> Open:
    """`aio.open_session` on the engine under test; what it runs carries the mark."""

    def opened(**options: Any) -> AbstractAsyncContextManager[aio.Session]:
        env = {"HF_MARK": mark, **options.pop("env", {})}
        return aio.open_session(engine=engine.name, env=env, **options)

    return opened


@pytest.fixture
async def box(open_session: Open) -> AsyncIterator[aio.Session]:
    """A private session."""
    async with open_session() as opened:
        yield opened


@pytest.fixture
def real(checked: tuple[Engine, EngineStatus]) -> bool:
    """Whether the engine runs programs, or plays them."""
    return Capability.REAL_PROCESSES in checked[1].capabilities


@pytest.fixture
def probe(real: bool) -> ProbeArgv:
    """The argv of a program of `programs.py`, for the engine under test."""

    def argv(name: str, *args: object) -> list[str]:
        words = [str(arg) for arg in args]
        return ["python3", "-c", PROBES[name].source, *words] if real else [name, *words]

    return argv


@pytest.fixture
def code(real: bool) -> Callable[[str], str]:
    """The source of a program of `programs.py`, for `run` on the engine under test."""
    return lambda name: PROBES[name].source if real else name


@pytest.fixture
def workflow() -> str:
    """The name of a workflow that no other test has."""
    return f"wf-{secrets.token_hex(8)}"

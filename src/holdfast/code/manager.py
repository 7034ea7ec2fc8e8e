"""Opens, finds, ends and sweeps sessions. The engine's own list is the registry: nothing is kept in this process."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from .. import errors, factory, runtimes
from ..abc import AlreadyThere, Capability, Engine, EngineStatus, Mode, SandboxRecord, SandboxSpec
from ..config import Limits, Settings, settings
from ..engines import AUTOMATIC, ENGINES, engine
from ..policy import allow_network
from .keys import Namespace, SessionKey, resolve
from .session import Session

_PATIENCE = 15.0
"""seconds for a session that ends just now to be gone"""


@asynccontextmanager
async def open_session(
    *,
    runtime: str = "python",
    image: str | None = None,
    workflow: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    engine: str | None = None,
    limits: Limits | None = None,
    network: bool = False,
    env: dict[str, str] | None = None,
    idle_timeout: float | None = None,
    max_lifetime: float | None = None,
    create: bool = True,
) -> AsyncIterator[Session]:
    """Open the session of a key, or make it.

    Of any number of callers with one key, in any number of processes, one creates the session (`created`), the
    others share it. Without `workflow`, `agent` and `session` it is private and ends with the `async with` block.

    Raises:
        SessionNotFound: there is none, and `create` is False.
        EngineUnavailable: no engine here can hold what was asked for; says which lacks what.
    """
    key = resolve(workflow, agent, session)
    config = settings()
    allow_network(network, config)
    chosen = await _home(key, engine or config.engine) or await factory.choose(engine, _needs(image, network))
    spec = SandboxSpec(
        name=key.sandbox_name,
        mode=Mode.CODE,
        runtime=runtimes.runtime(runtime).name,
        image=image,
        workspace="/workspace",
        limits=limits or Limits(),
        network=network,
        env=env or {},
        idle_timeout=_seconds(idle_timeout, config.idle_timeout),
        max_lifetime=_seconds(max_lifetime, config.max_lifetime),
        labels=key.labels(),
    )
    async with await _open(chosen, key, spec, config, create) as opened:
        yield opened


def _seconds(asked: float | None, default: float) -> float:
    if asked is not None and not 0 < asked < math.inf:
        raise errors.InvalidRequest("idle_timeout and max_lifetime are positive numbers of seconds")
    return default if asked is None else asked


async def _home(key: SessionKey, asked: str) -> Engine | None:
    """The engine that has the session already, where none is named: one key is one session, whatever was asked for."""
    if asked != "auto" or key.namespace is Namespace.PRIVATE:
        return None
    for name in AUTOMATIC:
        candidate = engine(name)
        if (await candidate.check()).available and await candidate.find(key.sandbox_name) is not None:
            return candidate
    return None


async def _open(chosen: Engine, key: SessionKey, spec: SandboxSpec, config: Settings, create: bool) -> Session:
    deadline = anyio.current_time() + _PATIENCE
    while anyio.current_time() < deadline:
        found = await chosen.find(spec.name)
        if found is not None:
            session = Session(key, chosen, found, False, found.spec_digest != spec.digest, config)
            try:
                await session.guest()
            except (errors.SessionNotFound, errors.SessionLost):
                await anyio.sleep(0.05)  # it ends just now
                continue
            return session
        if not create:
            raise errors.SessionNotFound(f"there is no session {key}; open it first")
        try:
            return await _create(chosen, key, spec, config)
        except AlreadyThere:
            continue  # somebody else was faster: share theirs
    raise errors.EngineFailed(f"the session {key} comes and goes; try again")


async def _create(chosen: Engine, key: SessionKey, spec: SandboxSpec, config: Settings) -> Session:
    record = await chosen.create(spec)
    try:
        session = Session(key, chosen, record, True, False, config)
        await session.guest()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await chosen.destroy(record)
        raise
    return session


def _needs(image: str | None, network: bool) -> frozenset[Capability]:
    needs = {Capability.CODE, Capability.NETWORK_ON if network else Capability.NETWORK_OFF}
    return frozenset(needs | ({Capability.IMAGES} if image else set()))


async def _sessions(only: str | None) -> list[tuple[Engine, SessionKey, SandboxRecord]]:
    found: list[tuple[Engine, SessionKey, SandboxRecord]] = []
    for name in [only] if only and only != "auto" else ENGINES:
        one = engine(name)
        if not (await one.check()).available:
            continue
        for record in await one.list():
            if key := SessionKey.from_labels(record.labels):
                found.append((one, key, record))
    return found


async def list_sessions(engine: str | None = None) -> list[tuple[SessionKey, SandboxRecord]]:
    """The sessions that live, of one engine or of all."""
    return [(key, record) for _, key, record in await _sessions(engine) if record.alive]


async def end_workflow(workflow: str, *, engine: str | None = None) -> int:
    """End all sessions of a workflow, whatever their names. Returns how many there were."""
    return await _remove(engine, lambda key, _: key.namespace is Namespace.WORKFLOW and key.id == workflow)


async def sweep(*, engine: str | None = None) -> int:
    """Remove what dead sessions left. Any process may do it at any time. Returns how many there were."""
    return await _remove(engine, lambda _, record: not record.alive)


async def _remove(only: str | None, doomed: Callable[[SessionKey, SandboxRecord], bool]) -> int:
    chosen = [(one, record) for one, key, record in await _sessions(only) if doomed(key, record)]
    async with anyio.create_task_group() as tasks:
        for one, record in chosen:
            tasks.start_soon(one.destroy, record)
    return len(chosen)


async def statuses() -> dict[str, EngineStatus]:
    """What each engine can do here."""
    return {name: await engine(name).check() for name in ENGINES}

"""Opens, finds and ends sessions. The engine's own list is the registry: nothing is kept in this process."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio

from .. import errors, factory, runtimes, telemetry
from ..abc import AlreadyThere, Engine, EngineStatus, Mode, OnProgress, SandboxRecord, SandboxSpec
from ..asked import variable
from ..config import Limits, Settings, settings
from ..engines import AUTOMATIC, ENGINES, engine
from ..policy import Request, decide
from ..secrets import passed_environment
from . import known, sweep
from .keys import Namespace, SessionKey, resolve
from .session import Session

_PATIENCE = 60.0
"""seconds for a session that somebody else makes or ends just now; a busy daemon takes its time"""


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
    keep_for: float | None = None,
    create: bool = True,
    on_progress: OnProgress | None = None,
) -> AsyncIterator[Session]:
    """Open the session of a key, or make it.

    Of any number of callers with one key, in any number of processes, one creates the session (`created`), the
    others share it. Without `workflow`, `agent` and `session` it is private and ends with the `async with` block.

    Args:
        idle_timeout: seconds without a call and without a running program after which the session ends.
        max_lifetime: seconds after which it ends in any case.
        keep_for: seconds that it stays after `end_workflow`, for somebody who wants to look: its programs are killed,
            its files can be read, and whatever is done in it, it then goes by its own clock.
        on_progress: called while an image is pulled.

    Raises:
        SessionNotFound: there is none, and `create` is False.
        EngineUnavailable: no engine here can hold what was asked for; says which lacks what.
    """
    started = time.perf_counter()
    with telemetry.span("sandbox_open") as span:
        key = resolve(workflow, agent, session)
        config = settings()
        kind = runtimes.runtime(runtime).name
        for asked, least in ((idle_timeout, 0.001), (max_lifetime, 0.001), (keep_for, 0)):
            _check_seconds(asked, least)
        decision = decide(
            Request(
                mode="code",
                runtime=kind,
                image=image,
                engine=engine,
                network=network,
                limits=limits,
                idle_timeout=idle_timeout,
                max_lifetime=max_lifetime,
            ),
            config,
        )
        if span.recording:
            span.set(**decision.attributes())
        if create:  # one that is there can be closed, whatever is allowed by now
            decision.require()
        needs = factory.needs(Mode.CODE, image=image, network=network)
        spec = SandboxSpec(
            name=key.sandbox_name,
            mode=Mode.CODE,
            runtime=kind,
            image=image,
            workspace=config.code_workdir,
            limits=decision.limits,
            network=network,
            env={**passed_environment(config), **_checked(env or {})},
            idle_timeout=decision.idle_timeout,
            max_lifetime=decision.max_lifetime,
            keep_for=config.keep_for if keep_for is None else keep_for,
            on_progress=on_progress,
            labels=key.labels(),
        )
        found = await _find(key, engine or config.engine)
        chosen = found[0] if found else await factory.choose(engine, Mode.CODE, needs)
        if not found:
            sweep.in_background(chosen)
        opened = await _open(chosen, key, spec, config, create, found[1] if found else None)
        _tell(opened, span, (time.perf_counter() - started) * 1000)
    async with opened:
        if found:
            sweep.in_background(chosen)
        yield opened


def _tell(opened: Session, span: telemetry.Span, duration: float) -> None:
    about = opened.about
    told: dict[str, telemetry.Value] = {
        "created": opened.created,
        "changed": opened.changed,
        "workspace_lost": opened.workspace_lost,
    }
    span.set(**about, **told)
    telemetry.count("sessions_opened", opened.effective.runtime, duration=("open", duration), created=opened.created)
    telemetry.event("sandbox_session_opened", {**about, **told, "duration_ms": duration})


def _check_seconds(asked: float | None, least: float) -> None:
    if asked is not None and not least <= asked < math.inf:
        raise errors.InvalidRequest("idle_timeout, max_lifetime and keep_for are numbers of seconds")


def _checked(env: dict[str, str]) -> dict[str, str]:
    """Before anything is made, and without a word about values, which may be secrets."""
    for name, value in env.items():
        try:
            variable(name)
        except ValueError as error:
            raise errors.InvalidRequest(str(error)) from error
        if "\0" in value:
            raise errors.InvalidRequest(f"the variable {name} contains a NUL byte")
    return env


async def _find(key: SessionKey, asked: str) -> tuple[Engine, SandboxRecord] | None:
    """The session, on whichever engine it is where none is named: one key is one session, whatever was asked for."""
    if key.namespace is Namespace.PRIVATE:
        return None
    for name in AUTOMATIC[Mode.CODE] if asked == "auto" else (asked,):
        candidate = engine(name)
        with suppress(errors.EngineUnavailable):
            if found := await candidate.find(key.sandbox_name):
                return candidate, found
    return None


async def _open(
    chosen: Engine, key: SessionKey, spec: SandboxSpec, config: Settings, create: bool, found: SandboxRecord | None
) -> Session:
    deadline, pause = anyio.current_time() + _PATIENCE, 0.02
    while anyio.current_time() < deadline:
        if found is not None:
            session = Session(key, chosen, found, False, found.spec_digest != spec.digest, config)
            try:
                await session.guest()
            except (errors.SessionNotFound, errors.SessionLost):
                await anyio.sleep(0.05)  # it ends just now
                found = await chosen.find(spec.name)
                continue
            return _met(session)
        if not create:
            raise errors.SessionNotFound(f"there is no session {key}; open it first")
        try:
            return _met(await _create(chosen, key, spec, config))
        except AlreadyThere:
            found = await chosen.find(spec.name)  # somebody else was faster: share theirs
            if found is None:  # when it runs: whoever asks without a pause keeps the daemon from starting it
                await anyio.sleep(pause)
                pause = min(2 * pause, 0.5)
    raise errors.EngineFailed(f"the session {key} comes and goes; try again")


def _met(session: Session) -> Session:
    if session.key.namespace is not Namespace.PRIVATE:
        session.workspace_lost = known.meet(session.record)
    return session


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


async def _sessions(only: str | None) -> list[tuple[Engine, SessionKey, SandboxRecord]]:
    found: list[tuple[Engine, SessionKey, SandboxRecord]] = []
    for one in sweep.named(only):
        if not (await one.check()).available:
            continue
        for record in await one.list():
            if key := SessionKey.from_labels(record.labels):
                found.append((one, key, record))
    return found


async def list_sessions(engine: str | None = None) -> list[tuple[SessionKey, SandboxRecord]]:
    """The sessions that live, of one engine or of all."""
    return [(key, record) for _, key, record in await _sessions(engine) if record.alive]


async def end_workflow(workflow: str, *, engine: str | None = None, keep_for: float | None = None) -> int:
    """End all sessions of a workflow, whatever their names. Returns how many there were.

    Args:
        keep_for: seconds that they stay for a look; None: as each was opened with, 0: not at all.

    Raises:
        EngineError: some could not be ended; all others were.
    """
    return await _end(Namespace.WORKFLOW, workflow, engine, keep_for)


async def end_agent(agent: str, *, engine: str | None = None, keep_for: float | None = None) -> int:
    """As `end_workflow`, for the sessions of an agent's run that was part of no workflow, or kept one to itself."""
    return await _end(Namespace.AGENT, agent, engine, keep_for)


async def _end(namespace: Namespace, name: str, only: str | None, keep_for: float | None) -> int:
    _check_seconds(keep_for, 0)
    config = settings()
    chosen = [
        (Session(key, one, record, False, False, config), record)
        for one, key, record in await _sessions(only)
        if key.namespace is namespace and key.id == name
    ]
    await sweep.each(
        partial(session.close, keep_for=record.keep_for if keep_for is None else keep_for) for session, record in chosen
    )
    return len(chosen)


async def statuses() -> dict[str, EngineStatus]:
    """What each engine can do here."""
    return {name: await engine(name).check() for name in ENGINES}

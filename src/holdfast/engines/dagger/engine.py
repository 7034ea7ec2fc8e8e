"""The engine `dagger`: a run is a query; the guest inside replays it. For sessions there is the engine `docker`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.to_thread
from anyio.lowlevel import RunVar

from ... import errors, images, runtimes
from ...abc import Capability, Effective, Engine, EngineStatus, SandboxRecord, SandboxSpec
from ...config import Settings, settings
from ...guest.replay import ReplayStream
from . import cli
from .address import FIX, NOT_SET, address
from .execution import Execution
from .prepare import base
from .query import EngineGone, QueryFailed
from .session import DaggerSession
from .sessions import Sessions

_CAPABILITIES = frozenset(
    {
        Capability.COMPUTE,
        Capability.IMAGES,
        Capability.REAL_PROCESSES,
        Capability.NETWORK_OFF,
        Capability.NETWORK_ON,
        Capability.WORKSPACE_LIMIT,
        Capability.PROCESS_LIMIT,
        Capability.PACKAGES,
    }
)
_limiters: RunVar[anyio.CapacityLimiter] = RunVar("holdfast_dagger_runs")


class DaggerEngine(Engine):
    """Runs on the engine that DAGGER_HOST names."""

    name = "dagger"

    def __init__(self) -> None:
        self._sessions = Sessions()

    async def check(self) -> EngineStatus:
        config = settings()
        try:
            where = address(config)
        except errors.ConfigError as error:
            return EngineStatus(False, reason=str(error), fix="")
        if where is None:
            return EngineStatus(False, reason=NOT_SET, fix=FIX)
        if reason := await anyio.to_thread.run_sync(where.unreachable):
            return EngineStatus(False, reason=reason, fix="start the Dagger engine there, or " + FIX)
        missing = ""
        capabilities = _CAPABILITIES
        if config.dagger_cgroup_parent:
            capabilities |= {Capability.MEMORY_LIMIT, Capability.CPU_LIMIT}
        else:
            missing = "memory holds for each process, not for a run; CPU is not limited: Dagger has no such limits"
        return EngineStatus(True, f"SDK {cli.sdk_version()}", capabilities, missing)

    @asynccontextmanager
    async def once(self, spec: SandboxSpec) -> AsyncIterator[tuple[anyio.abc.ByteStream, Effective]]:
        config = settings()
        reference = spec.image or runtimes.runtime(spec.runtime).image
        pinned = images.allow(reference, config.allowed_images)
        effective = _effective(spec, reference, config)
        async with (
            _limiter(config.dagger_max_parallel_runs),
            self._sessions.use(address(config), config.dagger_recycle_after_runs) as session,
        ):
            prepared = await _prepared(session, pinned, spec)
            yield ReplayStream(Execution(session, prepared, spec).deliver), effective

    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        raise errors.EngineUnavailable("the engine dagger has no sessions; use docker or local for them")

    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        raise errors.SessionNotFound("the engine dagger has no sessions")

    async def destroy(self, record: SandboxRecord) -> None:
        return

    async def list(self) -> Sequence[SandboxRecord]:
        return ()

    async def notes(self) -> dict[str, str]:
        from .probe import notes

        return await notes()

    def close(self) -> None:
        """End the session with the engine; the next run opens another."""
        self._sessions.close()


async def _prepared(session: DaggerSession, reference: str, spec: SandboxSpec) -> str:
    try:
        return await base(session, reference, spec.runtime, spec.packages)
    except QueryFailed as error:
        raise errors.EngineFailed(f"the Dagger engine could not prepare the run: {error.message[:400]}") from error
    except (EngineGone, TimeoutError) as error:
        raise errors.EngineUnavailable("the Dagger engine went away before the program ran; try again") from error


def _limiter(parallel: int) -> anyio.CapacityLimiter:
    """One for each event loop: more runs at once than the engine has cores for only wait inside it instead."""
    try:
        limiter = _limiters.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(parallel)
        _limiters.set(limiter)
    limiter.total_tokens = parallel
    return limiter


def _effective(spec: SandboxSpec, reference: str, config: Settings) -> Effective:
    limits = spec.limits
    held_by = {
        "workspace_mb": "a tmpfs of this size",
        "max_file_size_bytes": "RLIMIT_FSIZE",
        "open_files": "RLIMIT_NOFILE",
        "processes": "RLIMIT_NPROC of a user of its own",
    }
    not_held = {"max_files": "a tmpfs of Dagger has no such limit; files written through the API are counted"}
    if parent := config.dagger_cgroup_parent:
        held_by["memory_mb"] = held_by["cpu_millicores"] = (
            f"the cgroup {parent}, for all runs together, if the engine is set up as its operator says"
        )
    else:
        not_held["memory_mb"] = "holds for each process (RLIMIT_DATA), not for all together: Dagger has no such limit"
        not_held["cpu_millicores"] = "Dagger has no such limit"
    asked = limits.model_dump(exclude_none=True)
    if spec.network and config.network_deny:
        asked["network_deny"] = list(config.network_deny)
        not_held["network_deny"] = "a run has its engine's network: close it there, see docs/deployment.md"
    not_held = {name: why for name, why in not_held.items() if name in asked}
    if config.require_limits and not_held:
        raise errors.LimitsNotAvailable(
            "this Dagger engine cannot hold "
            + "; ".join(f"{name} ({why})" for name, why in not_held.items())
            + ". HOLDFAST_REQUIRE_LIMITS is set: ask for none of them, use another engine, or give the engine a cgroup "
            "parent and name it in HOLDFAST_DAGGER_CGROUP_PARENT"
        )
    return Effective(
        engine="dagger",
        runtime=spec.runtime,
        image=reference,
        workspace=spec.workspace,
        network=spec.network,
        profile="strict",
        limits=asked,
        not_held=not_held,
        held_by={name: why for name, why in held_by.items() if name in asked},
    )

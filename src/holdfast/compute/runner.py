"""The flow of one run: a fresh sandbox, files in, the program, artifacts out, nothing left."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields
from typing import TYPE_CHECKING

from .. import factory, runtimes, telemetry
from ..abc import Effective, Mode, OnProgress, SandboxSpec
from ..config import Limits, settings
from ..guest.client import OnOutput, Source
from ..guest.command import Command, encoded
from ..guest.oneshot import OneShot, Order, Outcome
from ..policy import Decision, Request, decide
from ..results import RunResult
from ..secrets import passed_environment
from ..telemetry import Span
from .inputs import checked_files, checked_stage
from .packages import checked_packages

if TYPE_CHECKING:
    from ..staging.reach import Reach
    from ..staging.runs import RunInput, RunPublisher

_COPYING_SECONDS = 30.0
_COPYING_BYTES_PER_SECOND = 4e6
"""how slow files may go in and artifacts come out"""
_SILENCE_SECONDS = 15.0
"""without a request and without a program, a run's client is gone"""


async def run(
    code: str,
    *,
    runtime: str = "python",
    image: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    stage: Mapping[str, str] | None = None,
    stdin: Source | str | None = None,
    artifacts: Sequence[str] = (),
    packages: Sequence[str] = (),
    timeout: float | None = None,
    network: bool = False,
    limits: Limits | None = None,
    engine: str | None = None,
    cache: bool = False,
    on_output: OnOutput | None = None,
    on_progress: OnProgress | None = None,
    max_stdout_bytes: int | None = None,
    max_stderr_bytes: int | None = None,
    reach: Reach | None = None,
) -> RunResult:
    """Run code once, in a sandbox that is made for it and goes away with it.

    Args:
        files: path in the working directory -> contents, written before the program starts.
        stage: path in the working directory -> key of a file of the object store, streamed there before the program
            starts; on Dagger they go through memory, 64 MB of them at most.
        artifacts: patterns of files to return, such as `out/*.png` or `**/*.csv`. Those over the cap on bytes are put
            into the object store, if one is configured, but not on Dagger; `artifacts_published` says where.
        packages: of the runtime's language, such as `pandas==2.2`; installed with network, the code runs without.
        cache: an equal run that this engine had before may be answered with what came out then; `cached` says so.
        on_output: called with "stdout" or "stderr" and bytes while the program runs; on Dagger, when it has ended.
        on_progress: called while an image is pulled.
        reach: which files of the object store this is about; without it all, and keys are whole.

    Returns:
        A result, also when the program fails, is killed or runs out of time: see `end_cause`.

    Raises:
        InvalidRequest: empty code, an unknown runtime or engine, NUL in a text.
        PolicyError: the operator does not allow it.
        EngineUnavailable: no engine here can do it; says which lacks what.
        PackagesFailed: a package could not be installed; the installer's own words.
        FileError: a file of `files` could not be written.
        SessionLost: the engine went away; nobody knows how far the program came.
        StagingError: a file of `stage` is missing or damaged, or the store does not answer; nothing was run.
    """
    with telemetry.span("sandbox_run") as span:
        kind = runtimes.runtime(runtime)
        config = settings()
        node = kind.name == "node"
        request = Request(
            runtime=kind.name,
            image=image,
            engine=engine,
            network=network,
            timeout=timeout,
            limits=limits,
            pip_packages=() if node else packages,
            npm_packages=packages if node else (),
        )
        decision = decide(request, config)
        if span.recording:
            span.set(**decision.attributes())
        decision.require()
        seconds, workspace, name = decision.timeout, config.compute_workdir, f"run-{secrets.token_hex(8)}"
        checked = checked_files(kind.script, code, files or {}, decision.limits, workspace)
        staged, publisher = await _staging(
            checked_stage(stage or {}, checked, workspace), bool(artifacts), name, decision, reach
        )
        order = Order(
            command=Command(
                argv=(*kind.command, f"{workspace}/{kind.script}", *args),
                env={**passed_environment(config), **(env or {})},
                timeout=seconds,
                stdout_cap_bytes=config.max_stdout_bytes if max_stdout_bytes is None else max_stdout_bytes,
                stderr_cap_bytes=config.max_stderr_bytes if max_stderr_bytes is None else max_stderr_bytes,
            ),
            files=checked,
            staged=staged,
            publisher=publisher,
            stdin=encoded(stdin) if isinstance(stdin, str) else stdin,
            artifacts=artifacts,
            max_artifact_bytes=config.max_artifact_bytes,
            max_artifacts=config.max_artifacts_count,
            on_output=on_output,
        )
        size = sum(map(len, order.files.values())) + order.max_answer_bytes
        size += sum(found.size_bytes for found in staged.values()) + (publisher.max_bytes if publisher else 0)
        spec = SandboxSpec(
            name=name,
            mode=Mode.COMPUTE,
            runtime=kind.name,
            image=image,
            workspace=workspace,
            limits=decision.limits,
            network=network,
            packages=checked_packages(kind.name, packages),
            cache=cache,
            timeout=seconds,
            # Whatever becomes of us: a run's sandbox ends by its own clock.
            idle_timeout=_SILENCE_SECONDS + (config.staging_timeout if staged or publisher else 0),
            max_lifetime=seconds + _COPYING_SECONDS + size / _COPYING_BYTES_PER_SECOND,
            on_progress=on_progress,
        )
        return await _told(span, spec, order, engine, decision)


async def _staging(
    stage: Mapping[str, str], artifacts: bool, run: str, decision: Decision, reach: Reach | None
) -> tuple[dict[str, RunInput], RunPublisher | None]:
    """What comes from the object store, and what goes there."""
    config = decision.settings
    if not stage and not (artifacts and config.nats_url):
        return {}, None
    from ..staging.reach import everything
    from ..staging.runs import RunPublisher, run_inputs

    reach = reach or everything(config)
    publisher = RunPublisher(config, reach, run, decision.limits) if artifacts and config.nats_url else None
    return await run_inputs(config, reach, stage, decision.limits), publisher


async def _told(span: Span, spec: SandboxSpec, order: Order, engine: str | None, decision: Decision) -> RunResult:
    started = time.perf_counter()
    about: dict[str, telemetry.Value] = {"runtime": spec.runtime, "image": spec.image}
    telemetry.event("sandbox_run_started", {"run_id": spec.name, **about})
    span.set(**about, sandbox_id=spec.name, timeout_seconds=order.command.timeout)
    result: RunResult | None = None
    try:
        result = await _run(spec, order, engine, decision)
    finally:
        duration = (time.perf_counter() - started) * 1000
        ok = result is not None and result.ok
        telemetry.count("runs", spec.runtime, duration=("run", duration), ok=ok)
        ended: dict[str, telemetry.Value] = {"exit_code": None, "end_cause": "error"}
        if result is not None:
            ended = {
                "engine": result.engine,
                "exit_code": result.exit_code,
                "end_cause": result.end_cause.value,
                "stdout_bytes": result.stdout_total_bytes,
                "stderr_bytes": result.stderr_total_bytes,
                "artifacts_count": len(result.artifacts),
            }
            span.set(engine=result.engine, artifacts_count=len(result.artifacts))
            span.ended(result)
        telemetry.event("sandbox_run_finished", {"run_id": spec.name, "duration_ms": duration, **about, **ended})
    return result


async def _run(spec: SandboxSpec, order: Order, engine: str | None, decision: Decision) -> RunResult:
    async with AsyncExitStack() as stack:
        if order.publisher is not None:
            await stack.enter_async_context(order.publisher)
        with telemetry.span("sandbox.connect"):
            needs = factory.needs(Mode.COMPUTE, image=spec.image, network=spec.network, packages=spec.packages)
            chosen = await factory.choose(engine, Mode.COMPUTE, needs)
            stream, effective = await stack.enter_async_context(chosen.once(spec))
        oneshot = OneShot(stream, order)
        with telemetry.span("sandbox.prepare_files"):
            await oneshot.send()
        with telemetry.span("sandbox.exec"):
            outcome = await oneshot.receive()
    with telemetry.span("sandbox.collect_outputs"):
        result = _result(outcome, spec, effective, order, decision)
    with telemetry.span("sandbox.collect_artifacts", {"artifacts_count": len(result.artifacts)}):
        return result


def _result(outcome: Outcome, spec: SandboxSpec, effective: Effective, order: Order, decision: Decision) -> RunResult:
    command = order.command
    return RunResult(
        **{field.name: getattr(outcome.result, field.name) for field in fields(outcome.result)},
        runtime=spec.runtime,
        engine=effective.engine,
        artifacts=outcome.artifacts,
        artifacts_skipped=outcome.skipped,
        artifacts_skipped_count=outcome.skipped_count,
        artifacts_published=outcome.published,
        artifacts_unpublished=outcome.unpublished,
        artifacts_unlisted=outcome.unlisted,
        cached=spec.cache and outcome.proof not in (None, spec.name),
        limits={
            "timeout_seconds": command.timeout,
            "max_stdout_bytes": command.stdout_cap_bytes,
            "max_stderr_bytes": command.stderr_cap_bytes,
            "max_artifact_bytes": decision.settings.max_artifact_bytes,
            **effective.limits,
            **({"clamped": decision.clamped} if decision.clamped else {}),
            **({"held_by": effective.held_by} if effective.held_by else {}),
            **({"not_held": effective.not_held} if effective.not_held else {}),
        },
    )

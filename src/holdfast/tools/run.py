"""`sandbox_run`, the one tool of compute mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compute.runner import run
from . import outputs, shown
from .inputs import RunInput, StagedRunInput
from .offer import Offer
from .tool import Result, Tool

if TYPE_CHECKING:
    from ..staging.reach import Reach


def tools(offer: Offer) -> list[Tool]:
    """`sandbox_run`, as this agent gets it."""
    asked, decision = offer.config, offer.decision
    packages = f" Installed: {', '.join(asked.packages)}." if asked.packages else ""
    description = (
        f"Run {asked.runtime_name} code once, in a fresh sandbox ({offer.place}); nothing stays behind. "
        f"Print what you need: stdout is cut after {decision.max_stdout_bytes} bytes. The working directory is "
        f"{offer.settings.compute_workdir}. {offer.bounds}{packages} "
        'Example: {"code": "print(sum(range(10)))"} '
    )

    mine: Reach | None = None
    if offer.settings.nats_url:
        from ..staging.reach import reach

        mine = reach(
            offer.settings, offer.context.workflow_run_id, offer.context.agent_run_id or offer.context.agent_name
        )
        description += (
            f'Files of the object store come in by stage: {{"in.csv": "data.csv"}}, keys are relative to {mine.own}; '
            "artifacts that are too large to be returned are put there. "
        )

    async def handle(given: RunInput) -> Result:
        runtime = given.runtime or asked.runtime_name
        result = await run(
            given.code,
            runtime=runtime,
            image=asked.image_name if runtime == asked.runtime_name else None,
            args=given.args,
            env={**given.env, **offer.secrets},
            files=given.files,
            stage=given.stage if isinstance(given, StagedRunInput) else None,
            reach=mine,
            stdin=given.stdin,
            artifacts=given.artifacts,
            packages=asked.packages if runtime == asked.runtime_name else (),
            timeout=given.timeout_seconds or asked.timeout,
            network=asked.wants_network,
            limits=decision.request.limits,  # as asked for, so that the result can tell what was cut
            engine=offer.engine,
            cache=asked.cache,
            max_stdout_bytes=decision.max_stdout_bytes,
            max_stderr_bytes=decision.max_stderr_bytes,
        )
        told = {**result.as_tool(), **shown.result(result)}
        if cut := offer.cut("max_stdout_bytes"):
            told["limits"] = {**result.limits, "clamped": {**result.limits.get("clamped", {}), **cut}}
        return told

    kind = RunInput if mine is None else StagedRunInput
    return [
        Tool("sandbox_run", description.rstrip(), kind, outputs.RUN, handle, offer.masker, offer.context.attributes)
    ]

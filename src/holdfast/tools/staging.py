"""`sandbox_stage_file` and `sandbox_publish_file`: large files, which do not pass through a model. Only where the
operator has configured an object store."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .inputs import PublishFileInput, StageFileInput
from .outputs import FAILED
from .tool import Result, Tool

if TYPE_CHECKING:
    from ..code.session import Session
    from ..staging.reach import Place, Reach
    from ..staging.sessions import Staged
    from .offer import Offer

_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        **FAILED,
        **dict.fromkeys(("file_key", "file_id", "bucket", "path", "digest"), _STRING),
        **dict.fromkeys(("size_bytes", "duration_ms"), _INTEGER),
    },
    "required": ["ok"],
}
FindSession = Callable[[str | None], Awaitable["Session"]]


def tools(offer: Offer, session: FindSession) -> list[Tool]:
    """The two tools, bound to what this agent may reach; none without a store."""
    if not offer.settings.nats_url:
        return []
    from ..staging import sessions
    from ..staging.reach import reach
    from ..staging.store import open_store

    settings, context = offer.settings, offer.context
    mine = reach(settings, context.workflow_run_id, context.agent_run_id or context.agent_name)
    most = f"A file may have {settings.staging_max_bytes >> 20} MB."

    async def stage(given: StageFileInput) -> Result:
        started = time.perf_counter()
        box = await session(given.sandbox_id)
        async with open_store(settings) as store:
            staged = await sessions.stage(
                box, store, mine, given.file_key, given.path, bucket=given.bucket, overwrite=given.overwrite
            )
        return _told(box, staged, started)

    async def publish(given: PublishFileInput) -> Result:
        started = time.perf_counter()
        box = await session(given.sandbox_id)
        async with open_store(settings) as store:
            staged = await sessions.publish(box, store, mine, given.path, given.file_key, bucket=given.bucket)
        return _told(box, staged, started)

    return [
        Tool(
            "sandbox_stage_file",
            f"Bring a file of the object store into the sandbox, however large it is; {_reached(mine, mine.read)}. "
            f'{most} Example: {{"file_key": "data.csv", "path": "in/data.csv"}}',
            StageFileInput,
            _OUTPUT,
            stage,
            offer.masker,
            offer.context.attributes,
        ),
        Tool(
            "sandbox_publish_file",
            "Put a file of the sandbox into the object store, where users and other agents of the workflow find it by "
            f'the file_key of the result; {_reached(mine, mine.write)}. {most} Example: {{"path": "out/report.pdf"}}',
            PublishFileInput,
            _OUTPUT,
            publish,
            offer.masker,
            offer.context.attributes,
        ),
    ]


def _reached(mine: Reach, more: tuple[Place, ...]) -> str:
    others = ", ".join(place.shown(mine.bucket) for place in more)
    return f"keys are relative to {mine.own}" + (f", or begin with {others}" if others else "")


def _told(box: Session, staged: Staged, started: float) -> Result:
    told = staged.as_tool()
    return {
        "ok": True,
        **told,
        "file_id": told["file_key"],
        "path": posixpath.join(box.effective.workspace, told["path"]),
        "duration_ms": round((time.perf_counter() - started) * 1000),
    }

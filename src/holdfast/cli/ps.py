"""`holdfast ps`: the sessions that live, and what runs in them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from ._common import Command, engine_option, execute, json_option, print_json
from ._render import duration, size, table

if TYPE_CHECKING:
    from ..abc import SandboxRecord
    from ..code.keys import SessionKey
    from ..guest.protocol import ExecInfo, StatusReport

_PATIENCE = 5.0
"""Seconds for a session to say how it is."""


@click.command(
    "ps",
    cls=Command,
    examples="""
        holdfast ps
        holdfast ps --execs
        holdfast ps --json
    """,
)
@engine_option
@click.option("--execs", is_flag=True, help="The programs of each session too.")
@json_option
def command(engine: str | None, execs: bool, as_json: bool) -> int:
    """List the sessions that live, from any process."""

    async def work() -> int:
        import anyio

        from .. import aio

        seen = [_Seen(key, record) for key, record in await aio.list_sessions(engine)]
        async with anyio.create_task_group() as tasks:
            for one in seen:
                tasks.start_soon(one.look, execs)
        seen.sort(key=lambda one: one.record.created_at)
        if as_json:
            print_json({"ok": True, "sessions": [one.as_json(execs) for one in seen]})
            return 0
        head = ("SESSION", "ENGINE", "RUNTIME", "AGE", "EXPIRES", "IDLE", "RUNNING", "WORKSPACE")
        table(head, [one.row() for one in seen])
        if execs:
            click.echo()
            rows = [row for one in seen for row in one.exec_rows()]
            table(("SESSION", "EXEC", "STATE", "STARTED", "COMMAND"), rows)
        return 0

    return execute(work, as_json=as_json)


@dataclass(slots=True)
class _Seen:
    """A session with what it says of itself; nothing, when it does not answer."""

    key: SessionKey
    record: SandboxRecord
    status: StatusReport | None = None
    execs: list[ExecInfo] = field(default_factory=list)

    async def look(self, execs: bool) -> None:
        import anyio

        from ..code.session import Session
        from ..config import settings
        from ..engines import engine

        session = Session(self.key, engine(self.record.engine), self.record, False, False, settings())
        with anyio.move_on_after(_PATIENCE):
            try:
                self.status = await session.status()
                if execs:
                    self.execs = list(await session.processes())
            except errors.SandboxError:
                self.status = None
            finally:
                await session.release()

    def row(self) -> tuple[str, ...]:
        effective, status = self.record.effective, self.status
        told = ("?", "?", "?")
        if status:
            used = status.workspace_total_bytes - status.workspace_free_bytes
            told = (
                duration(status.idle_ms / 1000),
                str(status.running_execs),
                f"{size(used)} of {size(status.workspace_total_bytes)}",
            )
        age = duration(max(0.0, time.time() - self.record.created_at))
        left = self._left()
        expires = "never" if left is None else f"in {duration(left)}"
        return (str(self.key), effective.engine, effective.runtime, age, expires, *told)

    def _left(self) -> float | None:
        """Seconds that it has at the most; the session itself knows best."""
        if self.status and self.status.lifetime_left_ms is not None:
            return self.status.lifetime_left_ms / 1000
        at = self.record.expires_at
        return None if at is None else max(0.0, at - time.time())

    def exec_rows(self) -> list[tuple[str, ...]]:
        return [
            (str(self.key), info.exec_id, _state(info), f"{duration(info.started_ms_ago / 1000)} ago", info.command)
            for info in self.execs
        ]

    def as_json(self, execs: bool) -> dict[str, Any]:
        told: dict[str, Any] = {
            "key": str(self.key),
            **self.key.labels(),
            "engine": self.record.engine,
            "runtime": self.record.effective.runtime,
            "created_at": self.record.created_at,
            "expires_in_seconds": self._left(),
            "status": self.status.model_dump(exclude={"type"}) if self.status else None,
        }
        if execs:
            told["execs"] = [{**info.model_dump(exclude={"ended"}), "state": _state(info)} for info in self.execs]
        return told


def _state(info: ExecInfo) -> str:
    if info.running or info.ended is None:
        return "running"
    ended = info.ended
    how = f"signal {ended.signal}" if ended.exit_code is None else f"exit {ended.exit_code}"
    return f"{ended.end_cause.value}, {how}"

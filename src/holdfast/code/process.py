"""A program that goes on without the call that started it: read it, wait for it, feed it, end it, from any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..guest.client import READ_BYTES
from ..guest.command import encoded
from ..results import ExecResult, OutputRead

if TYPE_CHECKING:
    from .session import Session


class Process:
    """A started program. It belongs to the session, not to this client."""

    def __init__(self, session: Session, exec_id: str) -> None:
        self._session = session
        self.id = exec_id

    async def read(self, since: int = 0, *, wait: float = 0, max_bytes: int = READ_BYTES) -> OutputRead:
        """What it wrote after `since`, at most `max_bytes` of it; waits up to `wait` seconds for something new."""
        with self._session.span("exec_read") as span:
            found = await (await self._session.guest()).read(self.id, since, max_bytes, wait)
            span.set(bytes=sum(len(chunk.data) for chunk in found.chunks))
            return found

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Its result.

        Raises:
            TimeoutError: it still runs after `timeout` seconds; it goes on.
        """
        with self._session.span("exec_wait") as span:
            result = await (await self._session.guest()).wait(self.id, timeout)
            if result is None:
                span.set(status="running")
            else:
                span.ended(result)
        if result is None:
            raise TimeoutError(f"{self.id} still runs after {timeout} s")
        return result

    async def kill(self, signal: int = 9) -> None:
        """End it with all that it started (SIGKILL), or send another signal to each of its processes."""
        with self._session.span("exec_kill"):
            await (await self._session.guest()).kill(self.id, signal)

    async def write_stdin(self, data: str | bytes, *, close: bool = False) -> None:
        with self._session.span("exec_stdin"):
            raw = encoded(data) if isinstance(data, str) else data
            await (await self._session.guest()).write_stdin(self.id, raw, close)

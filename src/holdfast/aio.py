"""The async surface, for asyncio and trio. `holdfast` has the same names, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .code.manager import end_agent as end_agent
from .code.manager import end_workflow as end_workflow
from .code.manager import list_sessions as list_sessions
from .code.manager import open_session as open_session
from .code.process import Process as Process
from .code.session import Session as Session
from .code.sweep import sweep as sweep
from .compute.runner import run as run

if TYPE_CHECKING:
    from pathlib import Path

    from .config import SandboxConfig
    from .tools.offer import ExecutionContext
    from .tools.toolset import Toolset

__all__ = [
    "Process",
    "Session",
    "end_agent",
    "end_workflow",
    "list_sessions",
    "open_session",
    "run",
    "sweep",
    "toolset",
]


async def toolset(
    agent: str | Path | SandboxConfig | None, *, context: ExecutionContext | None = None, engine: str | None = None
) -> Toolset:
    """The tools of an agent: see `holdfast.tools.toolset`, which is imported when it is first needed."""
    from .tools import toolset as tools

    return await tools.toolset(agent, context=context, engine=engine)

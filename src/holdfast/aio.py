"""The async surface, for asyncio and trio. `holdfast` has the same names, blocking."""

from __future__ import annotations

from .code.manager import end_workflow as end_workflow
from .code.manager import list_sessions as list_sessions
from .code.manager import open_session as open_session
from .code.manager import sweep as sweep
from .code.session import Process as Process
from .code.session import Session as Session
from .compute.runner import run as run

__all__ = ["Process", "Session", "end_workflow", "list_sessions", "open_session", "run", "sweep"]

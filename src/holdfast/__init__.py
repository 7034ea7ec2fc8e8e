"""Holdfast gives LLM agents a safe place to run code.

The names of this package block; `holdfast.aio` has the same names for asyncio and trio. They are imported when
they are first used, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio as aio
    from . import errors as errors
    from .code.keys import SessionKey as SessionKey
    from .config import Limits as Limits
    from .errors import SandboxError as SandboxError
    from .results import EndCause as EndCause
    from .results import ExecResult as ExecResult
    from .results import RunResult as RunResult
    from .sync import Process as Process
    from .sync import Session as Session
    from .sync import end_agent as end_agent
    from .sync import end_workflow as end_workflow
    from .sync import list_sessions as list_sessions
    from .sync import open_session as open_session
    from .sync import run as run
    from .sync import sweep as sweep
    from .sync import toolset as toolset
    from .tools.offer import ExecutionContext as ExecutionContext
    from .tools.tool import Tool as Tool
    from .tools.toolset import Toolset as Toolset

__version__ = "0.1.0"

_HOME = {
    "EndCause": "results",
    "ExecutionContext": "tools.offer",
    "ExecResult": "results",
    "Limits": "config",
    "Process": "sync",
    "RunResult": "results",
    "SandboxError": "errors",
    "Session": "sync",
    "SessionKey": "code.keys",
    "end_agent": "sync",
    "end_workflow": "sync",
    "list_sessions": "sync",
    "open_session": "sync",
    "run": "sync",
    "sweep": "sync",
    "toolset": "sync",
    "Tool": "tools.tool",
    "Toolset": "tools.toolset",
}
"""public name -> module that defines it"""

__all__ = ["__version__", "aio", "errors", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

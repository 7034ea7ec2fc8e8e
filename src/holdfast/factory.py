"""Chooses the engine, before anything is made: by what the request needs and what each engine can guarantee."""

from __future__ import annotations

from . import errors
from .abc import Capability, Engine
from .config import settings
from .engines import AUTOMATIC, engine


async def choose(name: str | None, needs: frozenset[Capability]) -> Engine:
    """The engine to use: the named one, or the best that has all that is needed.

    Raises:
        InvalidRequest: there is no engine of this name.
        EngineUnavailable: says of each engine what it lacks.
    """
    asked = name or settings().engine
    lacking: list[str] = []
    for candidate in AUTOMATIC if asked == "auto" else (asked,):
        found = engine(candidate)
        status = await found.check()
        missing = sorted(needs - status.capabilities)
        if status.available and not missing:
            return found
        if not status.available:
            lacking.append(
                f"{candidate}: {status.reason}; {status.fix}" if status.fix else f"{candidate}: {status.reason}"
            )
        else:
            lacking.append(
                f"{candidate} cannot do: {', '.join(missing)}" + (f" ({status.reason})" if status.reason else "")
            )
    raise errors.EngineUnavailable("no engine can do this here. " + ". ".join(lacking))

"""Chooses the engine, before anything is made: by what the request needs and what each engine can guarantee."""

from __future__ import annotations

from collections.abc import Sequence

from . import errors
from .abc import Capability, Engine, Mode
from .config import settings
from .engines import AUTOMATIC, engine
from .policy import engine_allowed


def needs(
    mode: Mode, *, image: str | None = None, network: bool = False, packages: Sequence[str] = ()
) -> frozenset[Capability]:
    """What a request needs an engine for."""
    found = {Capability(mode.value), Capability.NETWORK_ON if network else Capability.NETWORK_OFF}
    if image:
        found.add(Capability.IMAGES)
    if packages:
        found.add(Capability.PACKAGES)
    return frozenset(found)


async def choose(name: str | None, mode: Mode, needs: frozenset[Capability]) -> Engine:
    """The engine to use: the named one, or the best that has all that is needed.

    Raises:
        InvalidRequest: there is no engine of this name.
        EngineUnavailable: says of each engine what it lacks.
    """
    config = settings()
    asked = name or config.engine
    lacking: list[str] = []
    for candidate in AUTOMATIC[mode] if asked == "auto" else (asked,):
        if not engine_allowed(candidate, config):
            lacking.append(f"{candidate} is not allowed (the operator sets HOLDFAST_ALLOWED_ENGINES)")
            continue
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

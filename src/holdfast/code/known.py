"""Which sandbox this process last met under a session's name. It tells a session that was lost from one that is new.

Only this process's own memory: a container that died takes all that it knew with it, and nobody else can tell.
"""

from __future__ import annotations

from ..abc import SandboxRecord

_MAX = 4096
_met: dict[str, tuple[str, str]] = {}


def meet(record: SandboxRecord) -> bool:
    """Remember a sandbox; True if this process knew another one of this name, and did not end it itself."""
    found = _met.pop(record.name, None)
    here = (record.engine, f"{record.address} {record.created_at!r}")  # an address may be used again
    _met[record.name] = here
    while len(_met) > _MAX:
        del _met[next(iter(_met))]  # the one that was met longest ago
    return found is not None and found != here


def forget(record: SandboxRecord) -> None:
    """It was ended on purpose: the next one of this name has lost nothing."""
    _met.pop(record.name, None)

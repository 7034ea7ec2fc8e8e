"""Whether a container may be alive, by the daemon's clock: ours may differ, and may be set while a session lives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

_NEVER_STARTED_SECONDS = 60.0
"""so long somebody may be about to start a container that was made"""
_GRACE_SECONDS = 30.0
"""so long after its time a session may still be ending by itself"""


def may_live(state: str, created: str | float, marks: Mapping[str, str], now: float) -> bool:
    """False for what is to be removed.

    Args:
        state: the daemon's word for it, such as `running`.
        created: by the daemon's clock, as its list (seconds) or its inspection (text) has it.
        marks: the container's labels, verified.
        now: by the daemon's clock.
    """
    if isinstance(created, str):
        created = datetime.fromisoformat(created).timestamp()
    age = now - created
    if state == "created":
        return age < _NEVER_STARTED_SECONDS
    if state not in ("running", "paused"):
        return False
    # Both were written by the clock of whoever made it: only the difference means something to others.
    lifetime = float(marks["expiry"]) - float(marks["created"]) if marks["expiry"] else None
    return lifetime is None or age < lifetime + _GRACE_SECONDS

"""What the operator allows. Requests are checked against it before anything is made."""

from __future__ import annotations

from .config import Settings
from .errors import PolicyError


def allow_network(asked: bool, settings: Settings) -> None:
    """Network needs both: the request asks for it and the operator allows it.

    Raises:
        PolicyError: it was asked for and is not allowed.
    """
    if asked and not settings.allow_network:
        raise PolicyError(
            "network was asked for and is not allowed here; "
            "the operator allows it with STATION_SANDBOX_ALLOW_NETWORK_DEFAULT=true"
        )

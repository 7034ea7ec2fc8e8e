"""nats-py's client, which must not tell a login to a server without TLS where TLS was asked for. Imported when used."""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.errors import Error

_WEBSOCKETS = ("ws", "wss")


class CarefulClient(Client):
    """`tls://` alone would be taken as a wish: a server that says that it has no TLS would get it without."""

    def __init__(self, tls_configured: bool) -> None:
        super().__init__()
        self._tls_configured = tls_configured

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        assert self._current_server is not None
        scheme = self._current_server.uri.scheme
        wanted = scheme == "tls" or (self._tls_configured and scheme not in _WEBSOCKETS)
        if wanted and not info.get("tls_required"):
            raise Error("the server has no TLS, and it was asked for (tls:// or HOLDFAST_NATS_CA)")
        await super()._process_info(info, initial_connection)

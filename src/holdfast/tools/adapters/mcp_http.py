"""MCP over HTTP (the protocol's streamable HTTP), for those who know the token.

Whoever reaches this port can run code in sandboxes, and every page in a browser on this machine reaches loopback. So a
request must name us as its host, come from no foreign page, and carry the token, before anything of its body is read.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .mcp import GONE

PATH = "/mcp"
MAX_SESSIONS = 64
MAX_CONNECTIONS = 256
MAX_BODY_BYTES = 8 << 20
"""a file of 4 MB fits, as base64"""
_HEAD_SECONDS = 10.0
_BODY_SECONDS = 30.0
_END_SECONDS = 10


@dataclass(kw_only=True)
class Guard:
    """Lets requests pass to `app` that are meant for us, allowed and in time."""

    app: ASGIApp
    token: str
    hosts: frozenset[str]
    """what the header Host may say, in lower case"""
    sessions_only: bool
    """Versions of the protocol without sessions are refused: clients that know older ones then take these."""
    _under_way: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])
    _ended: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["path"], Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, _closing(send))
            return
        gone = scope[GONE] = anyio.Event()
        answered = False

        async def answer(message: Message) -> None:
            nonlocal answered
            answered = True
            await _closing(send)(message)

        with anyio.CancelScope(deadline=anyio.current_time() + _BODY_SECONDS) as under_way:

            async def receive_in_time() -> Message:
                message = await receive()
                if not message.get("more_body"):
                    under_way.deadline = math.inf
                return message

            self._under_way.add(under_way)
            try:
                await self.app(scope, receive_in_time, answer)
            finally:
                self._under_way.discard(under_way)
                gone.set()
        if under_way.cancelled_caught and not answered:
            late = Response("this server is ending", 503) if self._ended else Response("the body took too long", 408)
            await late(scope, receive, _closing(send))

    def end(self) -> None:
        """Cancel what is under way."""
        self._ended = True
        for each in self._under_way:
            each.cancel()

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        if headers.get("host", "").lower() not in self.hosts:
            return Response("this server is not known under the name in the header Host", 403)
        if not all(self._ours(origin) for origin in headers.getlist("origin")):
            return Response("pages of other origins may not call this server", 403)
        if not self._authorized(headers.getlist("authorization")):
            return Response("the token is missing or wrong", 401, {"WWW-Authenticate": 'Bearer realm="holdfast"'})
        if path != PATH:
            return Response(f"there is only {PATH}", 404)
        if self.sessions_only and headers.get("mcp-protocol-version", "") not in ("", *HANDSHAKE_PROTOCOL_VERSIONS):
            return _needs_session(headers["mcp-protocol-version"])
        return None

    def _ours(self, origin: str) -> bool:
        try:
            return urlsplit(origin.lower()).netloc in self.hosts
        except ValueError:
            return False

    def _authorized(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode())


def _needs_session(requested: str) -> Response:
    error = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": "code mode needs a session, which this version of the protocol does not have",
        "data": {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": requested[:40]},
    }
    return Response(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}), 400, media_type="application/json")


def _closing(send: Send) -> Send:
    """Closes the connection behind a refusal: nobody waits for the rest of a body that is not wanted."""

    async def closing(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing


class _Connection(H11Protocol):
    """uvicorn's, with a time in which the head of a request must be complete, and a limit on connections."""

    _due: float | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._hurry()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._hurry()
        else:
            self._due = None

    def _hurry(self) -> None:
        if self.transport.is_closing():
            return
        self._due = self._due or self.loop.time() + _HEAD_SECONDS
        # The timer of uvicorn for idle connections, which it stops itself whenever something arrives.
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self._due, self.timeout_keep_alive_handler)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's."""
        yield


class _Quiet:
    """From `begin` on, no word of uvicorn and the SDK about the requests that our end cuts off."""

    _LOGGERS = ("uvicorn.error", "mcp.shared.jsonrpc_dispatcher")

    def begin(self) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).disabled = True

    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).disabled = False


async def serve(
    server: Server[Any], listener: socket.socket, *, token: str, hosts: frozenset[str], stateful: bool
) -> None:
    """Serve clients until cancelled. `stateful`: the tools of a session remember what its calls before did."""
    sessions = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY_BYTES, max_sessions=MAX_SESSIONS)
    guard = Guard(app=sessions.handle_request, token=token, hosts=hosts, sessions_only=stateful)
    config = uvicorn.Config(
        guard,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    web = _Uvicorn(config)
    async with AsyncExitStack() as stack:
        quiet = stack.enter_context(_Quiet())
        await stack.enter_async_context(sessions.run())
        try:
            await web.serve([listener])
        finally:
            quiet.begin()
            guard.end()
            if web.started:
                with anyio.CancelScope(shield=True):
                    await web.shutdown([listener])


def names(host: str, port: int, more: tuple[str, ...]) -> frozenset[str]:
    """What clients may call us in the header Host."""
    shown = f"[{host}]" if ":" in host else host
    known = {"127.0.0.1", "localhost", "[::1]", shown, *more} - {"0.0.0.0", "[::]"}  # which some browsers take for us
    return frozenset(found for name in known for found in (name.lower(), f"{name.lower()}:{port}"))

"""GraphQL over HTTP to a session of ours. Not the SDK: `import dagger` and its connect cost 1.8 s, this costs nothing.

A connection for each query: it is on loopback, closing it is what cancels the query, and nothing is bound to one event
loop.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.abc

from ... import errors

_PIECE_BYTES = 256 << 10
_MAX_ANSWER_BYTES = 64 << 20


class QueryFailed(Exception):
    """The engine answered, and said no. `type` is what kind of error it calls it, such as EXEC_ERROR."""

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.message = errors.printable(str(first.get("message", "it gave no reason")))
        extensions = first.get("extensions")
        self.extensions: dict[str, Any] = extensions if isinstance(extensions, dict) else {}
        super().__init__(self.message)

    @property
    def type(self) -> str:
        return str(self.extensions.get("_type", ""))

    @property
    def stderr(self) -> str:
        return str(self.extensions.get("stderr", ""))


class EngineGone(Exception):
    """The engine, or the session to it, went away while a query was under way: nobody knows what became of it."""


async def query(
    port: int, token: str, text: str, variables: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Any:
    """Ask, and wait for the answer. Cancelling it ends what the engine does for it.

    Raises:
        QueryFailed: the engine said no.
        EngineGone: the connection broke, or what came back is no answer.
    """
    body = json.dumps({"query": text, "variables": variables}).encode()
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            status, answer = await _exchange(stream, port, token, body, headers or {})
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        raise EngineGone("the connection to the engine broke") from error
    try:
        found = json.loads(answer)
        failed = QueryFailed(found["errors"][0]) if found.get("errors") else None
        data = None if failed else found["data"]
    except (ValueError, LookupError, TypeError, AttributeError):
        said = errors.printable(answer[:300].decode(errors="replace"))
        raise EngineGone(f"the session answered with status {status}: {said}") from None
    if failed:
        raise failed
    return data


async def _exchange(
    stream: anyio.abc.ByteStream, port: int, token: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    import h11

    connection = h11.Connection(h11.CLIENT)
    credentials = base64.b64encode(f"{token}:".encode()).decode()
    fields = {
        "host": f"127.0.0.1:{port}",
        "authorization": f"Basic {credentials}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **headers,
    }
    head = connection.send(h11.Request(method="POST", target="/query", headers=list(fields.items()))) or b""
    data = connection.send(h11.Data(body)) or b""
    await stream.send(head + data + (connection.send(h11.EndOfMessage()) or b""))
    status, answer = 0, bytearray()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise EngineGone("the session's answer broke off") from error
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await stream.receive(_PIECE_BYTES))
            except anyio.EndOfStream:
                connection.receive_data(b"")
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            answer += event.data
            if len(answer) > _MAX_ANSWER_BYTES:
                raise EngineGone("the engine's answer is longer than any of ours can be")
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return status, bytes(answer)

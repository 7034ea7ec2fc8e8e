"""What reaches the HTTP port of `holdfast mcp` and must not get in: T60 of the catalogue, over raw sockets."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import httpx2
import pytest

from holdfast import aio
from holdfast.config import SandboxConfig
from holdfast.engines.fake import FakeEngine
from holdfast.tools.adapters import mcp, mcp_http
from holdfast.tools.toolset import Toolset

from .mcp_host import PATIENCE

pytestmark = pytest.mark.anyio
TOKEN = secrets.token_urlsafe(24)
PING = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping"}).encode()
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()


@pytest.fixture(autouse=True)
def fake() -> Iterator[None]:
    with FakeEngine():
        yield


@asynccontextmanager
async def listening(stateful: bool = False) -> AsyncIterator[int]:
    """The server in this process, so that its patience can be made short. Yields its port."""
    config = SandboxConfig(mode="code" if stateful else "compute")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]

        async def make() -> Toolset:
            return await aio.toolset(config, engine="fake")

        async with await make() as tools, anyio.create_task_group() as tasks:
            server = mcp.server_of_connections(tools, make)
            hosts = mcp_http.names("127.0.0.1", port, ())

            async def serve() -> None:
                await mcp_http.serve(server, listener, token=TOKEN, hosts=hosts, stateful=stateful)

            tasks.start_soon(serve)
            yield port
            tasks.cancel_scope.cancel()


def head(port: int, body: bytes | int = INITIALIZE, /, path: str = "/mcp", **changed: str | None) -> bytes:
    """The head of a request that would be let in, but for what is changed; None leaves a header out."""
    headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(body if isinstance(body, int) else len(body)),
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode()


async def answer(stream: anyio.abc.SocketStream) -> tuple[int, bytes]:
    """The status and the head of what comes back."""
    got = b""
    with anyio.fail_after(PATIENCE):
        while b"\r\n\r\n" not in got:
            got += await stream.receive()
    return int(got.split()[1]), got.partition(b"\r\n\r\n")[0].lower()


async def closed(stream: anyio.abc.SocketStream) -> None:
    with anyio.fail_after(PATIENCE):
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


async def exchange(port: int, request: bytes) -> tuple[int, bytes]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        return await answer(stream)


@pytest.mark.parametrize(
    ("status", "changed"),
    [
        pytest.param(200, {}, id="as it should be"),
        pytest.param(200, {"Authorization": f"bearer {TOKEN}"}, id="the scheme in another case"),
        pytest.param(401, {"Authorization": None}, id="no token"),
        pytest.param(401, {"Authorization": f"Bearer {TOKEN[:-1]}"}, id="a part of the token"),
        pytest.param(401, {"Authorization": f"Bearer {TOKEN}x"}, id="more than the token"),
        pytest.param(401, {"Authorization": "Bearer "}, id="an empty token"),
        pytest.param(401, {"Authorization": f"Basic {TOKEN}"}, id="another scheme"),
        pytest.param(401, {"Authorization": None, "path": f"/mcp?token={TOKEN}"}, id="the token in the address"),
        pytest.param(200, {"Host": "localhost:PORT"}, id="another of our names"),
        pytest.param(403, {"Host": "attacker.example:PORT"}, id="a name that was bound to us (DNS rebinding)"),
        pytest.param(403, {"Host": "127.0.0.1.attacker.example:PORT"}, id="a name that begins as ours"),
        pytest.param(403, {"Host": "localhost:1"}, id="another port"),
        pytest.param(403, {"Host": "0.0.0.0:PORT"}, id="the address that some browsers take for us"),
        pytest.param(200, {"Origin": "http://127.0.0.1:PORT"}, id="a page of our own origin"),
        pytest.param(403, {"Origin": "https://attacker.example"}, id="a foreign page"),
        pytest.param(403, {"Origin": "http://localhost:3000"}, id="a page of another server on this machine"),
        pytest.param(403, {"Origin": "null"}, id="a page without an origin"),
        pytest.param(403, {"Origin": "http://[bad"}, id="an origin that is none"),
        pytest.param(404, {"path": "/"}, id="another path"),
    ],
)
async def test_only_who_may_gets_in(status: int, changed: dict[str, str | None]) -> None:
    async with listening() as port:
        asked = {name: value and value.replace("PORT", str(port)) for name, value in changed.items()}
        path = asked.pop("path", None) or "/mcp"
        found, told = await exchange(port, head(port, path=path, **asked) + INITIALIZE)
        assert found == status
        assert (b"www-authenticate: bearer" in told) == (status == 401)
        assert (b"connection: close" in told) == (status >= 400)
        assert TOKEN.lower().encode() not in told


async def test_two_tokens_or_two_origins_are_refused() -> None:
    async with listening() as port:
        once = head(port).removesuffix(b"\r\n")
        two = once + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        assert (await exchange(port, two + INITIALIZE))[0] == 401
        mixed = once + f"Origin: http://127.0.0.1:{port}\r\nOrigin: http://attacker.example\r\n\r\n".encode()
        assert (await exchange(port, mixed + INITIALIZE))[0] == 403
        assert (await exchange(port, once + b"\r\n" + INITIALIZE))[0] == 200


async def test_a_body_of_100_mb_is_refused_and_one_of_5_mb_is_not() -> None:
    many = 100 << 20
    async with listening() as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head(port, many))
            assert (await answer(stream))[0] == 413  # by what it says of itself; not one byte is waited for
            await closed(stream)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream, anyio.create_task_group() as tasks:
            sent = 0

            async def flood() -> None:  # without a length
                nonlocal sent
                piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
                try:
                    for _ in range(100):
                        await stream.send(piece)
                        sent += 1
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

            await stream.send(head(port, Content_Length=None, Transfer_Encoding="chunked"))
            tasks.start_soon(flood)
            with suppress(anyio.BrokenResourceError):  # the end of the connection may overtake what was said before it
                assert (await answer(stream))[0] == 413
            await closed(stream)
        assert sent < 100
        large = INITIALIZE + b" " * (5 << 20)
        assert (await exchange(port, head(port, large) + large))[0] == 200


async def test_who_is_refused_is_not_read_from() -> None:
    async with listening() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head(port, 1 << 20, Authorization=None))
        assert (await answer(stream))[0] == 401
        await closed(stream)


@pytest.mark.parametrize("part", ["nothing", "head", "body"])
async def test_a_client_that_drips_is_closed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "_HEAD_SECONDS", 1.0)
    monkeypatch.setattr(mcp_http, "_BODY_SECONDS", 1.0)
    async with listening() as port:
        whole = head(port) + INITIALIZE
        begun = {"nothing": 0, "head": 20, "body": len(head(port)) + 5}[part]
        async with await anyio.connect_tcp("127.0.0.1", port) as stream, anyio.create_task_group() as tasks:

            async def drip() -> None:
                rest = whole[begun : begun + 20]
                try:
                    for number in rest if part != "nothing" else b"":
                        await stream.send(bytes([number]))
                        await anyio.sleep(0.2)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

            await stream.send(whole[:begun])
            tasks.start_soon(drip)
            if part == "body":
                assert (await answer(stream))[0] == 408
            await closed(stream)
            tasks.cancel_scope.cancel()
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:  # in pieces, and in time
            for piece in (whole[:20], whole[20 : len(head(port)) + 5], whole[len(head(port)) + 5 :]):
                await stream.send(piece)
                await anyio.lowlevel.checkpoint()
            assert (await answer(stream))[0] == 200


async def test_a_connection_that_was_used_must_not_drip_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "_HEAD_SECONDS", 1.0)
    async with listening() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head(port) + INITIALIZE)
        assert (await answer(stream))[0] == 200
        async with anyio.create_task_group() as tasks:

            async def drip() -> None:
                try:
                    for number in head(port):
                        await stream.send(bytes([number]))
                        await anyio.sleep(0.2)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

            tasks.start_soon(drip)
            await closed(stream)
            tasks.cancel_scope.cancel()


async def test_sessions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "MAX_SESSIONS", 2)
    async with listening(stateful=True) as port, httpx2.AsyncClient() as http:
        url, headers = f"http://127.0.0.1:{port}/mcp", _headers()
        opened = [await http.post(url, content=INITIALIZE, headers=headers) for _ in range(3)]
        assert [one.status_code for one in opened] == [200, 200, 503]
        first = {**headers, "Mcp-Session-Id": opened[0].headers["mcp-session-id"]}
        assert (await http.post(url, content=PING, headers=first)).status_code == 200
        assert (await http.delete(url, headers=first)).status_code == 200
        assert (await http.post(url, content=PING, headers=first)).status_code == 404
        assert (await http.post(url, content=INITIALIZE, headers=headers)).status_code == 200


async def test_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "MAX_CONNECTIONS", 2)
    async with listening() as port:
        async with await anyio.connect_tcp("127.0.0.1", port), await anyio.connect_tcp("127.0.0.1", port) as second:
            await second.send(head(port)[:20])
            async with await anyio.connect_tcp("127.0.0.1", port) as third:
                await closed(third)
            await second.send(head(port)[20:] + INITIALIZE)
            assert (await answer(second))[0] == 200
        async with await anyio.connect_tcp("127.0.0.1", port) as later:
            await later.send(head(port) + INITIALIZE)
            assert (await answer(later))[0] == 200


def _headers() -> dict[str, str]:
    return {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }

"""The testbed's Docker daemon, as tests see it: looked at through docker-py, and reached through relays that lie."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from anyio.streams.tls import TLSListener

from holdfast import aio
from holdfast.engines.docker import labels
from holdfast.engines.sockets import SocketStream
from tests.testbed import require

Rewrite = Callable[[bytes, bytes], Awaitable[tuple[bytes, bytes]]]
"""Takes the head and the body of a request, and gives what the daemon gets instead."""


def ours(daemon: Any) -> list[dict[str, Any]]:
    """This test's containers, in any state. The plain list: the other one looks at each again, and they come and go."""
    return [each for each in daemon.api.containers(all=True) if labels.verified(each["Labels"]) is not None]


def container_of(daemon: Any, box: aio.Session) -> Any:
    return daemon.containers.get(box.key.sandbox_name)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that has to happen; how long it takes is not what is tested."""
    with anyio.fail_after(seconds):
        while not await anyio.to_thread.run_sync(condition):
            await anyio.sleep(0.05)


@asynccontextmanager
async def relay(path: str, rewrite: Rewrite | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A tcp port on loopback that leads to a unix socket; what it passes on may be rewritten, or wrapped in TLS."""

    async def handle(near: anyio.abc.ByteStream) -> None:
        async with near, SocketStream.connect(path) as far:
            try:
                if rewrite:
                    head, body = await _request(near)
                    head, body = await rewrite(head, body)
                    await far.send(head + body)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_copy, near, far, tasks.cancel_scope)
                    tasks.start_soon(_copy, far, near, tasks.cancel_scope)
            except* (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError):
                pass  # one of the two is gone, and so is the other

    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener: anyio.abc.Listener[Any] = TLSListener(plain, tls, standard_compatible=False) if tls else plain
    async with anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, handle)
        yield int(plain.listeners[0].extra(anyio.abc.SocketAttribute.local_port))
        serving.cancel_scope.cancel()
    await listener.aclose()


async def _copy(source: anyio.abc.ByteStream, target: anyio.abc.ByteStream, both: anyio.CancelScope) -> None:
    try:
        while True:
            await target.send(await source.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        both.cancel()


async def _request(near: anyio.abc.ByteStream) -> tuple[bytes, bytes]:
    held = b""
    while b"\r\n\r\n" not in held:
        held += await near.receive()
    head, _, body = held.partition(b"\r\n\r\n")
    size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < size:
        body += await near.receive()
    return head + b"\r\n\r\n", body


def edited(head: bytes, body: bytes, change: Callable[[dict[str, Any]], None]) -> tuple[bytes, bytes]:
    """A request whose JSON was changed on its way."""
    content = json.loads(body)
    change(content)
    new = json.dumps(content).encode()
    return head.replace(f"Content-Length: {len(body)}".encode(), f"Content-Length: {len(new)}".encode()), new


def socket_of(daemon: Any) -> str:
    """The path of the daemon's socket."""
    return str(Path(require("docker")["host"].removeprefix("unix://")))

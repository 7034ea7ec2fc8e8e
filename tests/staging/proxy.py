"""A way to the server that can break, stop, or become slow."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc


class Proxy:
    """Passes bytes between clients and the server until it is told to do something else."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.url = ""
        self.cut_after: int | None = None
        """bytes from the client after which its connection breaks, once"""
        self.stall_after: int | None = None
        """bytes in either direction after which nothing passes any more"""
        self.pause = 0.0
        """seconds for each 2048 bytes"""
        self.refuse = False
        """no new connections"""
        self.passed = 0
        self.broken = 0

    async def handle(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            if self.refuse:
                return
            async with await anyio.connect_tcp(self._host, self._port) as server, anyio.create_task_group() as tasks:

                async def up() -> None:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                        while True:
                            piece = await client.receive(2048 if self.pause else 65536)
                            await self._gate(len(piece))
                            await server.send(piece)
                            if self.cut_after is not None and self.passed >= self.cut_after:
                                self.cut_after = None
                                self.broken += 1
                                break
                    tasks.cancel_scope.cancel()

                async def down() -> None:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                        while True:
                            piece = await server.receive(2048 if self.pause else 65536)
                            await self._gate(len(piece))
                            await client.send(piece)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(up)
                tasks.start_soon(down)

    async def _gate(self, size: int) -> None:
        self.passed += size
        if self.stall_after is not None and self.passed >= self.stall_after:
            await anyio.sleep_forever()
        await anyio.sleep(self.pause)


@asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    """A proxy before the server at `url`."""
    target = urlsplit(url)
    made = Proxy(str(target.hostname), int(target.port or 4222))
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.handle)
        made.url = f"nats://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        yield made
        tasks.cancel_scope.cancel()

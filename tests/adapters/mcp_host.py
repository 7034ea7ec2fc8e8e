"""`holdfast mcp` as a process, and the official SDK's client on it, over both transports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
PATIENCE = 60.0
"""Seconds that nothing may take: a test that waits for more hangs."""


@dataclass(frozen=True)
class Served:
    """A server over HTTP."""

    process: subprocess.Popen[str]
    url: str
    token: str

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@contextmanager
def serving(*words: str, token: str = "") -> Iterator[Served]:
    """`holdfast mcp --http`; it is ended with SIGTERM."""
    env = {**os.environ, "HOLDFAST_MCP_TOKEN": token}
    command = [HOLDFAST, "mcp", *words, "--http", "--port", "0"]
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            url = re.search(r"http://\S+/mcp", process.stderr.readline())
            assert url, process.stderr.read()
            made = "" if token else process.stderr.readline().split("token: ")[1].strip()
            yield Served(process, url[0], token or made)
        finally:
            process.terminate()
            process.wait(PATIENCE)


@contextmanager
def started(*words: str, token: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A program with these words; killed at the latest when the block is left."""
    env = {**os.environ, "HOLDFAST_MCP_TOKEN": token}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def http_client(served: Served, mode: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=served.headers, timeout=PATIENCE) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def stdio_client(mode: str, *words: str) -> AsyncIterator[Client]:
    server = StdioServerParameters(command=HOLDFAST, args=["mcp", *words], env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        yield client


@asynccontextmanager
async def client_of(way: str, *words: str) -> AsyncIterator[Client]:
    """A client over `stdio` or `http`, of the newest protocol (`auto`) or with a handshake (`legacy`)."""
    transport, _, mode = way.partition("-")
    if transport == "stdio":
        async with stdio_client(mode, *words) as client:
            yield client
    else:
        with serving(*words) as served:
            async with http_client(served, mode) as client:
                yield client


async def call(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The result of a call that is no mistake; the client holds it against the tool's own schema."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result.structured_content, dict) and not result.is_error, result.structured_content
    return result.structured_content

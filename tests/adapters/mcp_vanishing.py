"""A client that starts a program and waits for it: to be killed while it does. Called with URL, mode and mark."""

from __future__ import annotations

import os
import sys

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

PROGRAM = "import subprocess; subprocess.run(['setsid', 'sleep', '1000'])"


async def main(url: str, mode: str, mark: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['HOLDFAST_MCP_TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=100) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        await client.call_tool("sandbox_run", {"code": PROGRAM, "env": {"HF_MARK": mark}})


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])

"""The daemon's containers: the calls that make, reach, find and remove one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from ... import errors
from .daemon import SLOW, Daemon, Refused
from .stream import MultiplexedStream

_STDIO = {"stream": "1", "stdin": "1", "stdout": "1"}


class Containers:
    """Calls by a container's id or name. What the daemon refuses raises `Refused`, unless a method says otherwise."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def create(self, name: str, body: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Make one, not started. Its id, and what the daemon warns of."""
        made = await self._daemon.call(
            "make a container", "POST", "/containers/create", query={"name": name}, body=body, deadline=SLOW
        )
        return str(made["Id"]), made.get("Warnings") or []

    async def place(self, address: str, folder: str, archive: bytes) -> None:
        """Unpack a tar in one of its folders."""
        path = f"/containers/{address}/archive"
        await self._daemon.call("take the guest", "PUT", path, query={"path": folder}, body=archive, deadline=SLOW)

    async def attach(self, address: str, *, stderr: bool) -> MultiplexedStream:
        """stdin and stdout of its PID 1; the caller closes it. With stderr it ends when nobody inside has that open."""
        query = _STDIO | ({"stderr": "1"} if stderr else {})
        return await self._daemon.hijack("open a stream", f"/containers/{address}/attach", query=query)

    async def start(self, address: str) -> None:
        await self._daemon.call("start a container", "POST", f"/containers/{address}/start", deadline=SLOW)

    async def exec(self, address: str, user: str, command: list[str]) -> MultiplexedStream:
        """stdin, stdout and stderr of a program beside its PID 1; the caller closes it."""
        body = {"Cmd": command, "User": user, "AttachStdin": True, "AttachStdout": True, "AttachStderr": True}
        made = await self._daemon.call("open a stream", "POST", f"/containers/{address}/exec", body=body)
        return await self._daemon.hijack("open a stream", f"/exec/{made['Id']}/start", body={"Detach": False})

    async def inspect(self, address: str) -> dict[str, Any] | None:
        """All that the daemon knows of it; None: there is none.

        Raises:
            EngineFailed: the daemon does not tell.
        """
        try:
            found = await self._daemon.call("answer", "GET", f"/containers/{address}/json")
        except Refused as error:
            if error.status == 404:
                return None
            raise errors.EngineFailed(f"the Docker daemon does not tell about a container: {error}") from error
        if not isinstance(found, dict):
            raise errors.EngineFailed("the Docker daemon does not tell about a container")
        return found

    async def list(self, filters: str) -> list[dict[str, Any]]:
        """Those in any state that have the labels.

        Raises:
            EngineFailed: the daemon does not tell.
        """
        query = {"all": "1", "filters": filters}
        try:
            found = await self._daemon.call("list containers", "GET", "/containers/json", query=query)
        except Refused as error:
            raise errors.EngineFailed(f"the Docker daemon does not list its containers: {error}") from error
        return found if isinstance(found, list) else []

    async def remove(self, address: str) -> None:
        """Kill and remove it, with its volumes; returns when it is gone. One that is gone is fine.

        Raises:
            EngineFailed: it stays.
        """
        query = {"force": "1", "v": "1"}
        try:
            await self._daemon.call(
                "remove a container", "DELETE", f"/containers/{address}", query=query, deadline=SLOW
            )
        except Refused as error:
            # 404: gone; 409: somebody else removes it just now
            if error.status not in (404, 409):
                raise errors.EngineFailed(f"the container could not be removed: {error}") from error
        for _ in range(200):  # a removal under way frees the name a moment later
            if await self.inspect(address) is None:
                return
            await anyio.sleep(0.02)

"""inspect_ai's Docker sandbox, which drives `docker compose`.

It refuses daemons before 24.0.6, and works with them: its check of the version is switched off here.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from driver import IMAGE, Peer, serve
from inspect_ai.util._sandbox.docker import docker

COMPOSE = f"""
services:
  default:
    image: {IMAGE}
    init: true
    command: tail -f /dev/null
    network_mode: none
    x-local: true
"""


async def no_check() -> None:
    """In place of `validate_prereqs`."""


class InspectAi(Peer):
    package = "inspect-ai"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._config = Path(self._folder.name, "compose.yaml")
        self._config.write_text(COMPOSE)
        self._boxes: Any = None
        self._started = False

    async def open(self) -> None:
        if not self._started:
            await docker.DockerSandboxEnvironment.task_init("bench", str(self._config))
            self._started = True
        self._boxes = await docker.DockerSandboxEnvironment.sample_init("bench", str(self._config), {})

    async def close(self) -> None:
        await docker.DockerSandboxEnvironment.sample_cleanup("bench", str(self._config), self._boxes, False)

    async def exec(self, argv: list[str], timeout: int | None = None) -> str:
        done = await self._boxes["default"].exec(argv, timeout=timeout, timeout_retry=False)
        assert done.success, done.stderr
        return str(done.stdout)

    async def python(self, code: str) -> str:
        return await self.exec(["python3", "-c", code])

    async def write(self, name: str, content: bytes) -> None:
        await self._boxes["default"].write_file(f"/root/{name}", content)

    async def read(self, name: str) -> bytes:
        return bytes(await self._boxes["default"].read_file(f"/root/{name}", text=False))

    async def limited(self, command: str, seconds: int) -> None:
        await self.exec(["sh", "-c", command], timeout=seconds)


if __name__ == "__main__":
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        raise SystemExit("it needs the plugin `docker compose`, which is not installed here")
    docker.validate_prereqs = no_check
    serve(InspectAi())

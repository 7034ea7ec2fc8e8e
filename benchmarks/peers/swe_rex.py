"""SWE-ReX, Docker deployment. Its server is in the image already: there is no network to install it when it starts."""

from __future__ import annotations

import logging
import os
import subprocess
from typing import Any

from driver import Peer, serve
from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command, ReadFileRequest, WriteFileRequest


class SweRex(Peer):
    package = "swe-rex"

    def __init__(self) -> None:
        self._deployment: Any = None
        logging.getLogger().setLevel(logging.ERROR)

    async def open(self) -> None:
        self._deployment = DockerDeployment(image=os.environ["PEER_IMAGE"], pull="never", python_standalone_dir=None)
        await self._deployment.start()

    def close(self) -> None:
        # its own stop() asks the server first, which may be what hangs
        subprocess.run(["docker", "rm", "-f", self._deployment.container_name], capture_output=True, check=False)

    async def exec(self, argv: list[str]) -> str:
        done = await self._deployment.runtime.execute(Command(command=argv))
        assert done.exit_code == 0, done.stderr
        return str(done.stdout)

    async def python(self, code: str) -> str:
        return await self.exec(["python3", "-c", code])

    async def write(self, name: str, content: bytes) -> None:
        await self._deployment.runtime.write_file(WriteFileRequest(path=f"/root/{name}", content=content.decode()))

    async def read(self, name: str) -> str:
        return str((await self._deployment.runtime.read_file(ReadFileRequest(path=f"/root/{name}"))).content)

    async def limited(self, command: str, seconds: int) -> None:
        await self._deployment.runtime.execute(Command(command=["sh", "-c", command], timeout=seconds))


if __name__ == "__main__":
    for name in ("rex-deploy", "rex-runtime"):
        logging.getLogger(name).disabled = True
    serve(SweRex())

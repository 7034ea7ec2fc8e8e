"""AutoGen's DockerCommandLineCodeExecutor. All that it runs is a block of code in a file; its files are the host's."""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from pathlib import Path
from typing import Any

import docker
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from driver import IMAGE, Peer, serve


class AutoGen(Peer):
    package = "autogen-ext"
    shares_files = True

    def __init__(self) -> None:
        self._client: Any = docker.from_env()
        self._executor: Any = None
        self._name = ""
        self._folder = tempfile.TemporaryDirectory()

    async def open(self) -> None:
        self._name = f"autogen-bench-{secrets.token_hex(6)}"
        self._executor = DockerCommandLineCodeExecutor(
            image=IMAGE,
            container_name=self._name,
            work_dir=self._folder.name,
            timeout=int(os.environ.get("PEER_TIMEOUT", "60")),  # of all that it runs, not of one call
        )
        await self._executor.start()

    async def close(self) -> None:
        # its own stop() waits 10 s for a shell that ignores TERM
        self._client.containers.get(self._name).remove(force=True, v=True)

    async def _block(self, language: str, code: str) -> str:
        done = await self._executor.execute_code_blocks(
            [CodeBlock(language=language, code=code)], cancellation_token=CancellationToken()
        )
        assert done.exit_code == 0, done.output
        return str(done.output)

    async def exec(self, argv: list[str]) -> str:
        return await self._block("sh", shlex.join(argv))

    async def python(self, code: str) -> str:
        return await self._block("python", code)

    def write(self, name: str, content: bytes) -> None:
        Path(self._folder.name, name).write_bytes(content)

    def read(self, name: str) -> bytes:
        return Path(self._folder.name, name).read_bytes()

    async def limited(self, command: str, seconds: int) -> None:
        assert str(seconds) == os.environ["PEER_TIMEOUT"]
        await self._block("sh", command)


if __name__ == "__main__":
    serve(AutoGen())

"""smolagents' DockerExecutor: a Jupyter kernel in a container, which runs Python only."""

from __future__ import annotations

import os
import socket
from typing import Any

from driver import Peer, serve
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import DockerExecutor


class Smolagents(Peer):
    package = "smolagents"

    def __init__(self) -> None:
        self._executor: Any = None

    def open(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._executor = DockerExecutor(
            [], AgentLogger(level=LogLevel.OFF), image_name=os.environ["PEER_IMAGE"], build_new_image=False, port=port
        )

    def close(self) -> None:
        self._executor.container.remove(force=True, v=True)

    def python(self, code: str) -> str:
        return str(self._executor.run_code_raise_errors(code).logs)


if __name__ == "__main__":
    serve(Smolagents())

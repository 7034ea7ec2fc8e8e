"""llm-sandbox, Docker backend, without its set-up of a virtual environment, which needs the network."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from driver import IMAGE, Peer, serve
from llm_sandbox import SandboxSession


class LlmSandbox(Peer):
    package = "llm-sandbox"

    def __init__(self) -> None:
        self._session: Any = None
        self._folder = tempfile.TemporaryDirectory()

    def open(self) -> None:
        self._session = SandboxSession(
            lang="python",
            image=IMAGE,
            keep_template=True,
            skip_environment_setup=True,
            runtime_configs={"network_mode": "none"},
        )
        self._session.open()

    def close(self) -> None:
        self._session.container.remove(force=True, v=True)  # its own close() waits 10 s for a shell that ignores TERM
        self._session.container = None
        self._session.close()

    def exec(self, argv: list[str]) -> str:
        done = self._session.execute_command(shlex.join(argv))
        assert done.exit_code == 0, done.stderr
        return str(done.stdout)

    def python(self, code: str) -> str:
        done = self._session.run(code)
        assert done.exit_code == 0, done.stderr
        return str(done.stdout)

    def write(self, name: str, content: bytes) -> None:
        source = Path(self._folder.name, "in")
        source.write_bytes(content)  # it takes files only
        self._session.copy_to_runtime(str(source), f"/sandbox/{name}")

    def read(self, name: str) -> bytes:
        target = Path(self._folder.name, "out")
        self._session.copy_from_runtime(f"/sandbox/{name}", str(target))
        return target.read_bytes()

    def limited(self, command: str, seconds: int) -> None:
        self._session.run(f"import subprocess; subprocess.run(['sh', '-c', {command!r}])", timeout=seconds)


if __name__ == "__main__":
    serve(LlmSandbox())

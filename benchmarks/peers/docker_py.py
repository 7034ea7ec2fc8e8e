"""docker-py by hand: what one writes in an afternoon."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import docker
from driver import IMAGE, Peer, serve


class DockerPy(Peer):
    package = "docker"

    def __init__(self) -> None:
        self._client: Any = docker.from_env()
        self._container: Any = None

    def open(self) -> None:
        self._container = self._client.containers.create(IMAGE, ["sleep", "3600"], network_mode="none")
        self._container.start()

    def close(self) -> None:
        self._container.remove(force=True, v=True)

    def exec(self, argv: list[str]) -> str:
        done = self._container.exec_run(argv)
        assert done.exit_code == 0, done.output
        return done.output.decode()

    def python(self, code: str) -> str:
        return self.exec(["python3", "-c", code])

    def write(self, name: str, content: bytes) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        self._container.put_archive("/root", buffer.getvalue())

    def read(self, name: str) -> bytes:
        stream, _ = self._container.get_archive(f"/root/{name}")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()


if __name__ == "__main__":
    serve(DockerPy())

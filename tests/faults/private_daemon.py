"""A Docker daemon of a test's own, to be stopped, killed and hung: nobody else's containers are on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import docker

from tests.faults.host import beneath
from tests.testbed import without

IMAGE = "holdfast-tests/tools:1"
_TOOLS = ("/bin/sh", "/bin/sleep", "/bin/echo", "/bin/cat")
_PATIENCE = 60.0


class PrivateDaemon:
    """dockerd with data, state, socket and containerd of its own, without a network."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hf-dockerd-", dir="/var/tmp"))
        self.host = f"unix://{self.folder}/sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> Any:
        return docker.APIClient(base_url=self.host, version="auto", timeout=30)

    def start(self) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        self._end_containerd()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                # In a network of its own: with --bridge=none a daemon removes docker0, whosever it is.
                ["unshare", "--net", "dockerd", "-H", self.host, "--pidfile", f"{self.folder}/pid",
                 "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec",
                 "--bridge=none", "--iptables=false", "--ip6tables=false"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self.client.ping()
                return
            except docker.errors.DockerException:
                assert self._process.poll() is None and time.monotonic() < end, (self.folder / "log").read_text()[
                    -2000:
                ]
                time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.send(number)
        assert self._process is not None
        self._process.wait(_PATIENCE)

    def add_image(self) -> None:
        """A root file system of a few of this machine's programs: small, so that it is there at once."""
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
                for path in sorted({*_TOOLS, *(library for tool in _TOOLS for library in _libraries(tool))}):
                    tar.add(path)
                for name in ("workspace", "tmp", "proc", "dev", "sys", "etc"):
                    entry = tarfile.TarInfo(name)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
            archive.seek(0)
            name, _, tag = IMAGE.partition(":")
            self.client.import_image_from_data(archive.read(), repository=name, tag=tag)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(docker.errors.DockerException):
                for each in self.client.containers(all=True):
                    self.client.remove_container(each["Id"], force=True, v=True)
            self.stop()
        self._end_containerd()
        self._end_shims()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed([place for place in mounts if place.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self.folder)

    def _end_containerd(self) -> None:
        """A killed daemon leaves its containerd, and the next one does not start beside it."""
        path = self.folder / "exec/containerd/containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            if str(self.folder) in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
            path.unlink()

    def _end_shims(self) -> None:
        """After a test that failed while the daemon was dead, containers live on, each beneath a process of its own."""
        for shim in beneath(1):
            if f"{self.folder}/" in shim.command:
                for one in (*beneath(shim.pid), shim):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)


def _libraries(program: str) -> list[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for line in said.splitlines() for word in line.split() if word.startswith("/")]


def require_private_daemon() -> None:
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        without("a daemon of one's own needs root and dockerd")

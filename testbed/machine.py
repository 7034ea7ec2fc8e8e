"""The machine: what it is, what it may, and the one way in which commands are run on it."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.core import TestbedError

CODENAME = "bookworm"
"""The Debian release whose packages the images are made of: the one that has Python 3.11."""


@dataclass(frozen=True)
class Output:
    """What a finished command left: its exit status, and stdout and stderr apart."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The last line said, on stderr if there is one: where most programs put their reason."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit status {self.code}"


class CommandError(Exception):
    """A command failed, could not start or did not end in time."""

    def __init__(self, argv: Sequence[str], output: Output) -> None:
        super().__init__(f"{argv[0]}: {output.last_line}")
        self.argv = list(argv)
        self.output = output


Runner = Callable[[Sequence[str], float, Mapping[str, str] | None, Path | None], Output]
"""Runs argv with a timeout in seconds, extra environment and a working directory."""


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


@dataclass
class Machine:
    """Facts about the machine, replaceable in tests, and commands on it."""

    euid: int = field(default_factory=os.geteuid)
    root: Path = Path("/")
    """Where the files are that tell what the machine is and has."""
    free_bytes: Callable[[Path], int] = _free_bytes
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    runner: Runner | None = None
    _closed: bool = field(default=False, init=False)
    _children: set[int] = field(default_factory=set[int], init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Output:
        """The output of a command that ended with status 0.

        Raises:
            CommandError: any other status, a program that is not there, or one that outlived `timeout`.
        """
        output = self.try_run(argv, timeout=timeout, env=env, cwd=cwd)
        if output.code != 0:
            raise CommandError(argv, output)
        return output

    def try_run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Output:
        """Like `run`, with any exit status; 127: no such program, 124: it was too slow."""
        if self._closed:
            raise CommandError(argv, Output(130, "", "interrupted"))
        return (self.runner or self._spawn)(argv, timeout, env, cwd)

    def _spawn(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None, cwd: Path | None) -> Output:
        # Its own session, so that a command that is given up ends with all its children.
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            return Output(127, "", f"{argv[0]}: {error.strerror}")
        with self._lock:
            self._children.add(child.pid)
        try:
            stdout, stderr = child.communicate(timeout=timeout)
            return Output(child.returncode, stdout, stderr)
        except subprocess.TimeoutExpired:
            _kill_session(child.pid)
            stdout, stderr = child.communicate()
            return Output(124, stdout, f"{stderr}\n{argv[0]} gave no answer within {timeout:.0f} s")
        finally:
            with self._lock:
                self._children.discard(child.pid)

    def close(self) -> None:
        """Ends every command that is running, and starts no more: the way out on Ctrl-C."""
        self._closed = True
        self.kill_children()

    def kill_children(self) -> None:
        """Ends every command that is running."""
        with self._lock:
            for pid in self._children:
                _kill_session(pid)

    def which(self, program: str) -> str | None:
        """The path of a program; the sbin directories count, though a user's PATH often lacks them."""
        path = self.environ.get("PATH", os.defpath)
        return shutil.which(program, path=f"{path}:/usr/local/sbin:/usr/sbin:/sbin")

    def require_root(self, purpose: str) -> None:
        if self.euid != 0:
            raise TestbedError(
                f"{purpose} needs root, and this is uid {self.euid}",
                "call it as root, for example sudo testbed/up",
            )

    def require_debian(self, purpose: str) -> None:
        """Packages come from Debian 12 and are not mixed with another release's."""
        fields = dict(line.split("=", 1) for line in self._os_release_text().splitlines() if "=" in line)
        name = fields.get("PRETTY_NAME", "an unknown system").strip("\"'")
        if fields.get("ID", "").strip("\"'") != "debian" or fields.get("VERSION_CODENAME", "") != CODENAME:
            raise TestbedError(
                f"{purpose} needs Debian 12 ({CODENAME}), and this is {name}",
                "install it by hand, then call testbed/up again: what is already there is used",
            )

    def _os_release_text(self) -> str:
        try:
            return (self.root / "etc/os-release").read_text()
        except OSError:
            return ""

    def require_disk(self, where: Path, gigabytes: float, purpose: str) -> None:
        place = where
        while not place.exists():
            place = place.parent
        free = self.free_bytes(place) / 1e9
        if free < gigabytes:
            raise TestbedError(
                f"{purpose} needs {gigabytes:g} GB of disk space, and {place} has {free:.1f} GB free",
                "free some space, or name a cache on another disk with HOLDFAST_TESTBED_CACHE",
            )

    def require_amd64(self, purpose: str) -> None:
        if platform.machine() not in ("x86_64", "amd64"):
            raise TestbedError(f"{purpose} is only known to work on amd64", "use an amd64 machine")


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)

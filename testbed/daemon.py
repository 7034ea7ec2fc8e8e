"""Daemons that the testbed starts itself, because such a machine has no service manager."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.core import TestbedError


class Daemon:
    """One process in its own session, with a log, and a record by which a later call knows it again.

    The record holds the start time next to the pid: later the same pid may belong to someone else.
    """

    def __init__(self, name: str, run: Path) -> None:
        self.name = name
        self.log = run / f"{name}.log"
        self._record = run / f"{name}.json"

    @property
    def pid(self) -> int | None:
        """The pid while the process that we started is alive, else None."""
        try:
            record = json.loads(self._record.read_text())
            pid, started = int(record["pid"]), str(record["started"])
        except (OSError, ValueError, KeyError):
            return None
        return pid if start_time(pid) == started else None

    def start(
        self,
        argv: Sequence[str],
        *,
        answers: Callable[[], bool],
        timeout: float,
        environ: Mapping[str, str],
    ) -> None:
        """Starts the process and returns when it answers; one that does not is ended again."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            log.write(f"--- {time.strftime('%F %T')} {' '.join(argv)}\n".encode())
            log.flush()
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=dict(environ),
                cwd="/",
            )
        temporary = self._record.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"pid": child.pid, "started": start_time(child.pid)}))
        temporary.rename(self._record)
        deadline = time.monotonic() + timeout
        while not answers():
            if child.poll() is not None:
                self.forget()
                raise TestbedError(
                    f"{argv[0]} ended at once with status {child.returncode}: {self.last_line()}",
                    f"read {self.log}, then call testbed/up again",
                )
            if time.monotonic() > deadline:
                self.stop(grace=5)
                raise TestbedError(
                    f"{argv[0]} did not answer within {timeout:.0f} s: {self.last_line()}",
                    f"read {self.log}, then call testbed/up again",
                )
            time.sleep(0.1)

    def stop(self, grace: float) -> bool:
        """Ends the process if it is ours and alive, by force after `grace` seconds. Was there one?"""
        pid = self.pid
        if pid is not None:
            end(pid, grace)
        self.forget()
        return pid is not None

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._record.unlink()

    def last_line(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return "no log"
        return lines[-1].strip() if lines else "the log is empty"


def start_time(pid: int) -> str | None:
    """When a process started, in ticks since this boot, or None for one that is gone or a zombie."""
    try:
        # The name in brackets may hold anything, blanks and brackets too: count fields from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] == "Z" else f"{boot}:{fields[19]}"


def command_of(pid: int) -> str:
    """The program name of a process, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end(pid: int, grace: float) -> None:
    """SIGTERM, then SIGKILL after `grace` seconds; returns when the process is gone."""
    started = start_time(pid)
    for sig, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if started is None or start_time(pid) != started:
                return
            time.sleep(0.05)

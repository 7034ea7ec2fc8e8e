"""What was built before: results keyed by what went in, complete or absent."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.core import Report, TestbedError

GENERATIONS = 3
"""How many results of one thing are kept: branches with different recipes share a machine."""


def default_root(environ: Mapping[str, str]) -> Path:
    named = environ.get("HOLDFAST_TESTBED_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "holdfast-testbed"


def digest(*parts: object) -> str:
    """A short key for anything that JSON can hold; files count by their content."""
    hashed = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else json.dumps(part, sort_keys=True).encode()
        hashed.update(len(content).to_bytes(8, "big") + content)
    return hashed.hexdigest()[:16]


def files_below(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class Cache:
    """A directory outside the tree.

    built/   finished results, one name each, put there by a rename
    tmp/     work in progress; whatever is found there at the start of a call is left over from a killed one
    run/     pid files, logs and data of the daemons that the testbed started
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.built = root / "built"
        self.tmp = root / "tmp"
        self.run = root / "run"
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    @contextmanager
    def locked(self, report: Report) -> Iterator[None]:
        """One call at a time on this cache. A second one says that it waits, and whom for."""
        try:
            for directory in (self.built, self.tmp, self.run):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TestbedError(
                f"The cache {self.root} cannot be made: {error.strerror}",
                "name another directory with HOLDFAST_TESTBED_CACHE",
            ) from error
        with (self.root / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                report.line(
                    "testbed",
                    f"waiting for another call (pid {lock.read().strip() or 'unknown'}) to finish …",
                )
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._sweep()
            yield

    def _sweep(self) -> None:
        for left_over in self.tmp.iterdir():
            if left_over.is_dir():
                shutil.rmtree(left_over, ignore_errors=True)
            else:
                left_over.unlink(missing_ok=True)

    @contextmanager
    def workdir(self) -> Iterator[Path]:
        """A directory for work in progress, on the same file system as the results, gone at the end."""
        path = Path(tempfile.mkdtemp(dir=self.tmp))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def find(self, name: str) -> Path | None:
        path = self.built / name
        return path if path.exists() else None

    def get(self, name: str, make: Callable[[Path], Path]) -> Path:
        """The result `name`, a file or a directory, made now if it is not there.

        `make` works in the directory that it is given and returns the result's path in there; only a finished
        one is moved to its place. Names are `thing@key`; the oldest keys of the same thing go.
        """
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:  # two parts may want the same result: the second waits for the first
            kept = self.built / name
            if not kept.exists():
                with self.workdir() as work:
                    make(work).rename(kept)
                self._forget_old(name.rsplit("@", 1)[0], kept)
            return kept

    def purge(self) -> None:
        """Deletes everything but the lock, which this call holds."""
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def _forget_old(self, thing: str, kept: Path) -> None:
        same = [path for path in self.built.iterdir() if path.name.rsplit("@", 1)[0] == thing]
        same.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in same[GENERATIONS:]:
            if old != kept:
                shutil.rmtree(old) if old.is_dir() else old.unlink()

"""Where `local` keeps what must be found again: one folder per session, private to this user."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import EngineFailed
from .bubblewrap import ETC, ETC_OF_HOST


def state_folder() -> Path:
    """HOLDFAST_STATE_DIR, else a folder for sockets of this user. Short: a socket's path has 107 characters."""
    if given := os.environ.get("HOLDFAST_STATE_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/holdfast")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "holdfast") if runtime else Path(f"/tmp/holdfast-{os.geteuid()}")


def prepare() -> Path:
    """The state folder, made if need be; refused if it is somebody else's."""
    folder = state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.lstat()
        if owner.st_uid != os.geteuid() or not stat.S_ISDIR(owner.st_mode):
            raise EngineFailed(f"{folder} belongs to somebody else; set HOLDFAST_STATE_DIR to a folder of yours")
        for name in ("sessions", "mnt", "etc"):
            (folder / name).mkdir(mode=0o755, exist_ok=True)
        for name in ETC_OF_HOST:
            path = folder / "etc" / name
            if not path.exists():
                path.mkdir(exist_ok=True) if Path("/etc", name).is_dir() else path.touch()
        for name, text in ETC.items():
            path = folder / "etc" / name
            if not path.is_file() or path.read_text() != text:
                part = path.with_name(f"{name}.{secrets.token_hex(4)}")  # threads of one process do this too
                part.write_text(text)
                part.replace(path)
    except OSError as error:
        raise EngineFailed(f"cannot keep state in {folder} ({error}); set HOLDFAST_STATE_DIR") from error
    return folder


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is written down of a session."""

    name: str
    created_at: float
    pid: int
    """of the sandbox's PID 1, as the host sees it"""
    pid_start: int
    """its start time: a pid alone may be somebody else's by now"""
    effective: dict[str, Any]
    spec_digest: str
    labels: dict[str, str]
    max_lifetime: float | None = None
    keep_for: float = 0


class Folder:
    """The folder of one session."""

    def __init__(self, state: Path, name: str) -> None:
        self.path = state / "sessions" / name
        self.name = name

    @property
    def address(self) -> Path:
        return self.path / "sock"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time makes or removes this session. Blocks: call it in a thread."""
        while True:
            with contextlib.suppress(FileExistsError):  # `exist_ok` raises it all the same if the folder goes just then
                self.path.mkdir(mode=0o700)
            try:
                descriptor = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # removed between the two
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._still(descriptor):
                    yield
                    return
            finally:
                os.close(descriptor)

    def _still(self, descriptor: int) -> bool:
        """Whoever had the lock before us may have removed the folder, and the lock file with it."""
        try:
            return (self.path / "lock").stat().st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            return False

    def listen(self) -> socket.socket:
        self.address.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self.address))
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise EngineFailed(f"{self.address}: {error}; set HOLDFAST_STATE_DIR to a shorter path") from error
        return listener

    def alive(self) -> bool:
        """The guest holds the only listening socket, so a connection tells."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.address))
            except OSError:
                return False
        return True

    def remember(self, what: Remembered) -> None:
        part = self.path / "record.part"
        part.write_text(json.dumps(asdict(what)))
        part.replace(self.path / "record.json")

    def recall(self) -> Remembered | None:
        try:
            return Remembered(**json.loads((self.path / "record.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def clear(self) -> None:
        """Forget the session; call it with the lock."""
        for name in ("record.json", "record.part", "sock", "log"):
            (self.path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the session and its folder; call it with the lock, which goes last."""
        self.clear()
        (self.path / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


def process_start(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])

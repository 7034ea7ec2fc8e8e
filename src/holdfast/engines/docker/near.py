"""The short way to a guest: its socket, for a client on the daemon's own machine that may look into its processes.

Through the daemon each message passes three more processes, each way. Who cannot go this way finds nothing here, and
dials: a client in a container or on another machine, one that is not root, a container in a machine of its own.

What lies inside a container is its programs' to change. So nothing is taken on trust: a link is not followed, it would
lead to sockets of the host; the number of a process may be another's by now; and whoever listens must be the guest.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct

import anyio

from ..sockets import SocketStream

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PATIENCE = 0.25
"""seconds for a guest that was started just now to listen"""


async def dial(pid: int, container: str, path: str) -> SocketStream | None:
    """A stream to the socket at `path` in a container whose PID 1 this machine knows as `pid`; None: not from here."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack, anyio.move_on_after(_PATIENCE):
        # Held before it is asked whose it is: what is opened is then what was asked about.
        process = _open(stack, f"/proc/{pid}", _FOLDER)
        if not _belongs(process, container):
            return None
        root = _open(stack, "root", _FOLDER, process)
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return _connected(root, path, pid)
            await anyio.sleep(0.002)
    return None


def _connected(root: int, path: str, pid: int) -> SocketStream | None:
    """Does not block: on one machine the listener's queue takes a connection, or refuses it."""
    with contextlib.ExitStack() as stack:
        at = root
        for name in path.strip("/").split("/"):
            at = _open(stack, name, _NO_LINK, at)
        if not stat.S_ISSOCK(os.fstat(at).st_mode):
            return None
        raw = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        raw.connect(f"/proc/self/fd/{at}")
        listener, _, _ = struct.unpack("iII", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return SocketStream(raw.dup()) if listener == pid else None


def _open(stack: contextlib.ExitStack, name: str, flags: int, folder: int | None = None) -> int:
    opened = os.open(name, flags, dir_fd=folder)
    stack.callback(os.close, opened)
    return opened


def _belongs(process: int, container: str) -> bool:
    """Whether a process is in a cgroup of the container: its number alone may be one of another pid namespace."""
    with os.fdopen(os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), errors="replace") as file:
        return container in file.read()

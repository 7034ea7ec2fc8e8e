"""Where the Docker daemon is, and a connection to it: DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

from ... import errors
from ...config import settings
from ..sockets import SocketStream

_DEFAULT = "unix:///var/run/docker.sock"
_PLAIN_PORT, _TLS_PORT = 2375, 2376
_QUEUE_PAUSE = 0.02
"""seconds until a daemon whose queue of connections is full is tried again"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon listens, and how one speaks to it."""

    text: str
    """as it was given"""
    path: str | None
    """of a unix socket; None: over tcp"""
    host: str = ""
    port: int = 0
    certificates: Path | None = None
    """folder with ca.pem, cert.pem and key.pem; None: without TLS"""

    async def connect(self) -> anyio.abc.ByteStream:
        """A new connection.

        Raises:
            OSError: nobody listens there, or not for this user.
            EngineUnavailable: the certificates do not fit.
        """
        if self.path is not None:
            return SocketStream(await _connect(socket.AF_UNIX, self.path))
        raw = await self._connect_tcp()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = SocketStream(raw)
        if self.certificates is None:
            return stream
        try:
            return await TLSStream.wrap(
                stream,
                server_side=False,
                hostname=self.host,
                ssl_context=self._context(self.certificates),
                standard_compatible=False,  # daemons end a hijacked stream without the closing words of TLS
            )
        except BaseException as error:
            await anyio.aclose_forcefully(stream)
            if isinstance(error, ssl.SSLError | anyio.BrokenResourceError | anyio.EndOfStream):
                reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or "it hung up"
                raise errors.EngineUnavailable(
                    f"no TLS with the Docker daemon at {self.text}: {errors.printable(str(reason))}; "
                    f"the certificates are those of {self.certificates}"
                ) from error
            raise

    async def _connect_tcp(self) -> socket.socket:
        failure: OSError | None = None
        for family, _, _, _, where in await anyio.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                return await _connect(family, where)
            except OSError as error:
                failure = error
        raise failure or OSError(errno.EADDRNOTAVAIL, "the name has no address")

    def _context(self, folder: Path) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            if (folder / "cert.pem").exists():
                context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        except (OSError, ssl.SSLError) as error:
            raise errors.EngineUnavailable(
                f"the certificates for the Docker daemon cannot be read: {folder} needs ca.pem, cert.pem and key.pem "
                f"({error})"
            ) from error
        return context


def address() -> Address:
    """The daemon that the environment names, or this machine's own.

    Raises:
        EngineUnavailable: DOCKER_HOST names none that can be reached from here.
    """
    text = settings().docker_host or _DEFAULT  # from DOCKER_HOST, or from the operator's file
    parts = urlsplit(text if "://" in text else f"tcp://{text}")
    if parts.scheme == "unix" and parts.path:
        return Address(text, path=parts.netloc + parts.path)
    if parts.scheme == "ssh":
        raise errors.EngineUnavailable(
            "DOCKER_HOST=ssh://… is not supported; forward the daemon's socket instead: "
            "ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock USER@HOST, and DOCKER_HOST=unix:///tmp/docker.sock"
        )
    if parts.scheme not in ("tcp", "http", "https"):
        raise errors.EngineUnavailable(f"DOCKER_HOST={errors.printable(text)} is not unix://PATH or tcp://HOST:PORT")
    given = os.environ.get("DOCKER_CERT_PATH")
    secure = bool(os.environ.get("DOCKER_TLS_VERIFY") or given or parts.scheme == "https")
    try:
        port = parts.port
    except ValueError as error:
        raise errors.EngineUnavailable(f"DOCKER_HOST={errors.printable(text)}: {error}") from error
    return Address(
        text,
        path=None,
        host=parts.hostname or "127.0.0.1",
        port=port or (_TLS_PORT if secure else _PLAIN_PORT),
        # Whoever has certificates gets TLS with all checks: none of the variables turns a check off.
        certificates=Path(given or Path.home() / ".docker") if secure else None,
    )


async def _connect(family: int, where: object) -> socket.socket:
    raw = socket.socket(family, socket.SOCK_STREAM)
    raw.setblocking(False)
    try:
        while True:
            try:
                raw.connect(where)  # type: ignore[arg-type]
            except BlockingIOError as error:
                if error.errno == errno.EAGAIN and family == socket.AF_UNIX:
                    await anyio.sleep(_QUEUE_PAUSE)
                    continue
                await anyio.wait_writable(raw)
                if failed := raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(failed, os.strerror(failed)) from None
            return raw
    except BaseException:
        raw.close()
        raise

"""As much of HTTP/1.1 as the Docker API needs, over one byte stream that serves one request.

A library would do, if it let go of the connection: a request that is given up has to close its socket at once, whether
the daemon is silent, drips, or pulls an image; and a hijacked stream has to start exactly behind the headers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.abc

_MAX_HEAD_BYTES = 64 << 10
_RECEIVE_BYTES = 64 << 10


class NotHttp(Exception):
    """What came is no answer of a web server, or only a part of one."""


@dataclass(slots=True)
class Answer:
    """Status and headers; the body is read as it is needed."""

    status: int
    headers: dict[str, str]
    """by name in lower case"""
    stream: anyio.abc.ByteStream
    rest: bytes = b""
    """what was received behind the headers"""
    _ended: bool = field(default=False, init=False)

    async def body(self, max_bytes: int) -> bytes:
        """All of the body.

        Raises:
            NotHttp: it breaks off, or is longer than `max_bytes`.
        """
        whole = bytearray()
        async for piece in self.pieces():
            whole += piece
            if len(whole) > max_bytes:
                raise NotHttp(f"the answer is longer than {max_bytes} bytes")
        return bytes(whole)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if self.status in (204, 304):
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := _number((await self._line()).split(b";")[0], 16):
                async for piece in self._next(size):
                    yield piece
                await self._line()
        elif "content-length" in self.headers:
            async for piece in self._next(_number(self.headers["content-length"].encode(), 10)):
                yield piece
        else:
            while piece := await self._some():
                yield piece

    async def _some(self) -> bytes:
        """The next bytes; empty at the end of the stream."""
        piece, self.rest = self.rest, b""
        if piece or self._ended:
            return piece
        try:
            return await self.stream.receive(_RECEIVE_BYTES)
        except anyio.EndOfStream:
            self._ended = True
            return b""

    async def _next(self, size: int) -> AsyncIterator[bytes]:
        """Exactly so many bytes, as they come."""
        while size:
            piece = await self._some()
            if not piece:
                raise NotHttp("the answer broke off")
            taken, self.rest = piece[:size], piece[size:]
            size -= len(taken)
            yield taken

    async def _line(self) -> bytes:
        held = bytearray()
        while b"\n" not in held:
            piece = await self._some()
            if not piece or len(held) > _MAX_HEAD_BYTES:
                raise NotHttp("the answer broke off")
            held += piece
        line, _, rest = bytes(held).partition(b"\n")
        self.rest = rest
        return line.rstrip(b"\r")


async def ask(
    stream: anyio.abc.ByteStream, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """Send a request and wait for the head of its answer.

    Raises:
        NotHttp: what answers is no web server.
        BrokenResourceError: the connection broke.
    """
    lines = [f"{method} {target} HTTP/1.1", "Host: docker"]
    lines += [f"{name}: {value}" for name, value in {"Content-Length": str(len(body)), **headers}.items()]
    try:
        await stream.send("\r\n".join([*lines, "", ""]).encode())
        if body:
            await stream.send(body)
    except anyio.BrokenResourceError:
        # Whoever refuses a request need not read all of it; then there is an answer.
        return await _head(stream)
    return await _head(stream)


async def _head(stream: anyio.abc.ByteStream) -> Answer:
    held = bytearray()
    while b"\r\n\r\n" not in held:
        if len(held) > _MAX_HEAD_BYTES:
            raise NotHttp("what answers there is no web server")
        try:
            held += await stream.receive(_RECEIVE_BYTES)
        except anyio.EndOfStream:
            raise NotHttp("it hung up without an answer" if not held else "the answer broke off") from None
    head, _, rest = bytes(held).partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    words = status.split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdecimal():
        raise NotHttp("what answers there is no web server")
    pairs = (line.partition(":") for line in fields)
    return Answer(int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}, stream, rest)


def _number(text: bytes, base: int) -> int:
    try:
        number = int(text.strip(), base)
    except ValueError:
        raise NotHttp("the answer does not tell its length") from None
    if number < 0:
        raise NotHttp("the answer does not tell its length")
    return number

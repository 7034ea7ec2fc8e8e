"""Calls to the Docker daemon. Each has a connection of its own and a deadline for the whole of it.

Whoever gives a call up, by its deadline or because it is cancelled, closes the connection: nothing goes on waiting for
a daemon that hangs or drips, and the daemon stops what it does for us, such as pulling an image.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import anyio.abc

from ... import errors
from . import http
from .address import Address, address
from .stream import MultiplexedStream

QUICK = 20.0
"""seconds for what only looks something up"""
SLOW = 60.0
"""seconds for what makes or removes a container"""
_MAX_BODY_BYTES = 32 << 20
_MAX_LINE_BYTES = 1 << 20
_UPGRADE = {"Connection": "Upgrade", "Upgrade": "tcp"}
_Take = Callable[[dict[str, Any]], None]


class Refused(Exception):
    """The daemon answered, and said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Daemon:
    """The daemon that DOCKER_HOST names, or the one of this machine."""

    def __init__(self) -> None:
        self._clock: float | None = None  # of the daemon, minus our monotonic one

    @property
    def now(self) -> float:
        """The time by the daemon's clock, to the second; ours may differ, and may be set while we look."""
        return time.time() if self._clock is None else time.monotonic() + self._clock

    async def call(
        self,
        what: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        deadline: float = QUICK,
    ) -> Any:
        """One request and its answer, as JSON has it; None if there is no body.

        Raises:
            EngineUnavailable: the daemon is not there, does not answer in time, or talks nonsense.
            Refused: it answered, and said no.
        """
        async with self._ask(what, method, path, query, body, deadline) as answer:
            content = await answer.body(_MAX_BODY_BYTES)
        try:
            return json.loads(content) if content.strip() else None
        except ValueError:
            raise _nonsense("it did not send JSON", address()) from None

    async def follow(
        self, what: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], take: _Take
    ) -> None:
        """Give each JSON object of an answer to `take`, as it comes. The caller has a deadline, if there is one."""
        async with self._ask(what, method, path, query, None, None, headers) as answer:
            held = b""
            async for piece in answer.pieces():
                *whole, held = (held + piece).split(b"\n")
                for line in filter(bytes.strip, whole):
                    take(_object(line))
                if len(held) > _MAX_LINE_BYTES:
                    raise http.NotHttp("a line has no end")
            if held.strip():
                take(_object(held))

    async def hijack(
        self, what: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> MultiplexedStream:
        """A request whose connection becomes a stream to a program; the caller closes it."""
        async with self._ask(what, "POST", path, query, body, QUICK, _UPGRADE, hijacks=True) as answer:
            if answer.status not in (101, 200):
                raise http.NotHttp(f"{answer.status} to a request for a stream")
            return MultiplexedStream(answer.stream, answer.rest)

    @asynccontextmanager
    async def _ask(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | bytes | None,
        deadline: float | None,
        headers: Mapping[str, str] | None = None,
        hijacks: bool = False,
    ) -> AsyncIterator[http.Answer]:
        where = address()
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        stream: anyio.abc.ByteStream | None = None
        keep = False
        try:
            with anyio.fail_after(deadline):
                stream = await where.connect()
                sent = {"Content-Type": kind, **(headers or {"Connection": "close"})}
                answer = await http.ask(stream, method, target, sent, raw)
                self._set_clock(answer.headers.get("date"))
                if answer.status >= 400:
                    raise Refused(answer.status, _said(answer.status, await answer.body(_MAX_BODY_BYTES)))
                yield answer
                keep = hijacks
        except TimeoutError as error:
            if error.errno is not None:  # not our deadline: the kernel's, for a machine that does not answer
                raise _unreachable(where, error) from error
            raise errors.EngineUnavailable(
                f"the Docker daemon did not {what} within {deadline:.0f} s; is it overloaded or stopped?"
            ) from None
        except (anyio.BrokenResourceError, anyio.EndOfStream, http.NotHttp) as error:
            raise _nonsense(str(error) or "the connection broke", where) from error
        except OSError as error:
            raise _unreachable(where, error) from error
        finally:
            if stream is not None and not keep:
                await anyio.aclose_forcefully(stream)

    def _set_clock(self, date: str | None) -> None:
        try:
            self._clock = parsedate_to_datetime(date or "").timestamp() - time.monotonic()
        except ValueError:
            self._clock = None


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise http.NotHttp("it did not send JSON")
    return found


def _said(status: int, body: bytes) -> str:
    """What the daemon said, for a message."""
    try:
        text = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    return errors.printable(str(text).strip())[:500] or f"status {status}"


def _nonsense(reason: str, where: Address) -> errors.EngineUnavailable:
    # With TLS 1.3, a daemon that does not want a client tells so by hanging up, after all seemed well.
    doubt = f"; does it know the certificate in {where.certificates}?" if where.certificates else ""
    return errors.EngineUnavailable(f"the Docker daemon gave no good answer: {reason}{doubt}")


def _unreachable(where: Address, error: OSError) -> errors.EngineUnavailable:
    reason = error.strerror or str(error)
    return errors.EngineUnavailable(f"no Docker daemon can be reached at {errors.printable(where.text)}: {reason}")

"""Messages of a bucket's stream, in order, as many as there are. A few are asked for at a time: memory stays flat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from .. import errors
from .link import Link, Mailbox, status
from .objects import stream

_CLEANING_SECONDS = 5.0


class Messages:
    """What a consumer delivers. Get it from `messages`."""

    def __init__(self, link: Link, box: Mailbox, bucket: str, name: str, total: int, ahead: int) -> None:
        self._link, self._box, self._ahead = link, box, ahead
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream(bucket)}.{name}"
        self.total = total
        """how many there were when we began"""
        self._asked = self._got = 0

    async def next(self) -> Any:
        """The next message.

        Raises:
            StagingLost: it did not come in time, or is not the next one.
        """
        # Half of what may be on its way is asked for anew when the other half is here.
        while self._asked < self.total and self._asked - self._got <= self._ahead // 2:
            batch = min(max(1, self._ahead // 2), self.total - self._asked)
            request = {"batch": batch, "expires": int((self._link.patience + 10) * 1e9)}
            await self._link.publish(self._next, json.dumps(request).encode(), self._box.subject)
            self._asked += batch
        message = await self._box.receive()
        if status(message) is not None:
            told = errors.printable(str(message.headers.get("Description", status(message))))[:100]
            raise errors.StagingLost(f"the object store at {self._link.address} gave up: {told}")
        self._got += 1
        if _delivered(message) != self._got:
            raise errors.StagingLost(f"a message of the object store at {self._link.address} was lost on its way")
        return message


def _fields(message: Any) -> list[str]:
    """$JS.ACK.<stream>.<consumer>.<times>.<sequence>.<delivered>.<time>.<pending>, with two more in newer servers"""
    parts = str(message.reply).split(".")
    return parts[-9:] if len(parts) == 9 else parts[2:11] if len(parts) >= 11 else []


def _delivered(message: Any) -> int:
    found = _fields(message)
    return int(found[6]) if found and found[6].isdigit() else 0


def sequence(message: Any) -> int:
    found = _fields(message)
    return int(found[5]) if found and found[5].isdigit() else 0


def time(message: Any) -> float:
    """Seconds since 1970."""
    found = _fields(message)
    return int(found[7]) / 1e9 if found and found[7].isdigit() else 0.0


@asynccontextmanager
async def messages(link: Link, bucket: str, subject: str, *, last: bool = False, ahead: int) -> AsyncIterator[Messages]:
    """All messages of a subject, or the last one of each that a wildcard stands for.

    Raises:
        StagingUnavailable: there is no such bucket.
    """
    config = {
        "deliver_policy": "last_per_subject" if last else "all",
        "ack_policy": "none",
        "filter_subject": subject,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int((link.patience + 30) * 1e9),
    }
    made = await link.ask(
        f"$JS.API.CONSUMER.CREATE.{stream(bucket)}", {"stream_name": stream(bucket), "config": config}
    )
    if "error" in made:
        raise failure(made["error"], link.address, bucket)
    try:
        name, total = str(made["name"]), int(made["num_pending"])
    except (KeyError, TypeError, ValueError):
        raise errors.StagingLost(f"the object store at {link.address} sent an answer that is none") from None
    try:
        with link.mailbox() as box:
            yield Messages(link, box, bucket, name, total, ahead)
    finally:
        if not link.lost:  # it would end by itself, only later
            with anyio.move_on_after(_CLEANING_SECONDS, shield=True), contextlib.suppress(errors.StagingError):
                await link.ask(f"$JS.API.CONSUMER.DELETE.{stream(bucket)}.{name}")


def failure(error: Any, address: str, bucket: str) -> errors.StagingError:
    """What JetStream's own words mean."""
    told = error if isinstance(error, dict) else {}
    code, number = told.get("code"), told.get("err_code")
    words = errors.printable(str(told.get("description", error)))[:200]
    if number == 10059:
        return errors.StagingUnavailable(f"there is no bucket {bucket} in the object store at {address}")
    if number in (10039, 10076):
        return errors.StagingUnavailable(f"the object store at {address} has no JetStream for us: {words}")
    if number in (10023, 10047, 10077, 10122) or "maximum" in words or "resource limits" in words:
        return errors.StagingFull(f"the object store at {address} has no room: {words}")
    if code in (401, 403) or number == 10109:
        return errors.StagingDenied(f"the object store at {address} does not allow it: {words}")
    return errors.StagingError(f"the object store at {address} says: {words}")

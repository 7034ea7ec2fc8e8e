"""Messages of a bucket's stream, in order, as many as there are. A few are asked for at a time: memory stays flat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from .. import errors
from .answers import failure, no_bucket
from .link import Link, Mailbox, status
from .objects import new_nuid, stream

_CLEANING_SECONDS = 5.0


class Messages:
    """What a consumer delivers. Get it from `messages`."""

    def __init__(self, link: Link, bucket: str, name: str, total: int, ahead: int, box: Mailbox) -> None:
        self._link, self._box, self._ahead = link, box, ahead
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream(bucket)}.{name}"
        self.total = total
        """how many there were when we began"""
        self._asked = self._got = 0
        self._left = total

    @property
    def done(self) -> bool:
        """There is no further one. Some may have been removed meanwhile: then there were fewer than `total`."""
        return self._got == self.total or self._left == 0

    async def next(self) -> Any:
        """The next message, if not `done`.

        Raises:
            StagingLost: it did not come in time, or is not the next one.
        """
        # Half of what may be on its way is asked for anew when the other half is here.
        while self._asked < self.total and self._asked - self._got <= self._ahead // 2:
            batch = min(max(1, self._ahead // 2), self.total - self._asked)
            request = {"batch": batch, "expires": int((self._link.patience + 10) * 1e9)}
            await self._link.publish(self._next, json.dumps(request).encode(), self._box)
            self._asked += batch
        message = await self._box.receive()
        if status(message) is not None:
            told = errors.printable(str(message.headers.get("Description", status(message))))[:100]
            raise errors.StagingLost(f"the object store at {self._link.address} gave up: {told}")
        self._got += 1
        if _delivered(message) != self._got:
            raise errors.StagingLost(f"a message of the object store at {self._link.address} was lost on its way")
        self._left = _field(message, 8)
        return message


def _fields(message: Any) -> list[str]:
    """$JS.ACK.<stream>.<consumer>.<times>.<sequence>.<delivered>.<time>.<pending>, with two more in newer servers"""
    parts = str(message.reply).split(".")
    return parts[-9:] if len(parts) == 9 else parts[2:11] if len(parts) >= 11 else []


def _field(message: Any, number: int) -> int:
    found = _fields(message)
    return int(found[number]) if found and found[number].isdecimal() else 0


def _delivered(message: Any) -> int:
    return _field(message, 6)


def sequence(message: Any) -> int:
    return _field(message, 5)


def time(message: Any) -> float:
    """Seconds since 1970."""
    return _field(message, 7) / 1e9


@asynccontextmanager
async def messages(link: Link, bucket: str, subject: str, *, last: bool = False, ahead: int) -> AsyncIterator[Messages]:
    """All messages of a subject, or the last one of each that a wildcard stands for; none where there is no bucket."""
    name = new_nuid()  # ours, so that it can be removed even when the answer to its making did not come
    config = {
        "name": name,
        "deliver_policy": "last_per_subject" if last else "all",
        "ack_policy": "none",
        "filter_subject": subject,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int((link.patience + 30) * 1e9),
    }
    request = {"stream_name": stream(bucket), "config": config}
    async with link.mailbox() as box:
        try:
            made = await link.ask(f"$JS.API.CONSUMER.CREATE.{stream(bucket)}.{name}", request)
            if "error" in made and not no_bucket(made):
                raise failure(made, link.address)
            try:
                total = 0 if no_bucket(made) else int(made["num_pending"])
            except (KeyError, TypeError, ValueError):
                raise errors.StagingLost(f"the object store at {link.address} sent an answer that is none") from None
            yield Messages(link, bucket, name, total, ahead, box)
        finally:
            # It would end by itself, only later; so nobody waits for the answer.
            with anyio.move_on_after(_CLEANING_SECONDS, shield=True), contextlib.suppress(errors.StagingError):
                await link.publish(f"$JS.API.CONSUMER.DELETE.{stream(bucket)}.{name}", b"", box)

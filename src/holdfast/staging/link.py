"""A connection to NATS: requests to JetStream, each with a deadline and a named error. What broke is not mended.

nats-py carries the messages. It is asked for nothing that could wait without end, and needs asyncio.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn

import anyio
from anyio.lowlevel import current_token

from .. import errors
from ..config import Settings
from . import credentials

_CLOSING_SECONDS = 2.0
_PENDING_BYTES = 8 << 20
_MAX_WAITING_BYTES = 256 << 20
_SHOWN = 300
_DENIALS = 64


class Link:
    """One connection. Get it from `connect`."""

    def __init__(self, address: str, patience: float) -> None:
        self.address = address
        self.patience = patience
        """seconds that the server has for each answer"""
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._boxes: set[Mailbox] = set()
        self._lost: str | None = None
        self._denied: deque[str] = deque(maxlen=_DENIALS)
        self._last = ""
        """what nats-py complained about last"""
        self._client: Any = None

    # --- what nats-py calls

    async def _on_error(self, error: Exception) -> None:
        whole = errors.printable(str(error) or type(error).__name__).removeprefix("nats: ")
        text = whole[:_SHOWN]
        if "permissions violation" in whole.lower():
            self._denied.append(whole)
        elif self._lost is None and self._client is not None and self._client.is_closed:
            self._lost = text
        self._last = text
        self._wake()

    async def _on_closed(self) -> None:
        self._lost = self._lost or "the connection to it broke"
        self._wake()

    def _wake(self) -> None:
        for box in self._boxes:
            box.wake()

    # --- life

    async def open(self, settings: Settings) -> None:
        from nats.errors import Error

        from .client import CarefulClient

        options = credentials.login(settings)
        context = credentials.tls(settings)
        self._client = CarefulClient(context is not None)
        self._client._public_nkey = options.pop("public_nkey", None)  # what its own reading of a seed would set
        if "signature_cb" in options:
            self._client._auth_configured = True
        try:
            with anyio.fail_after(self.patience):
                await self._client.connect(
                    [*settings.nats_url],
                    name="holdfast",
                    error_cb=self._on_error,
                    closed_cb=self._on_closed,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=self.patience,
                    pending_size=_PENDING_BYTES,
                    tls=context,
                    **options,
                )
        except TimeoutError as error:
            text = f"the object store at {self.address} did not answer within {self.patience:g} s"
            raise errors.StagingUnavailable(text) from error
        except (Error, OSError, ValueError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> errors.SandboxError:
        words = f"{self._last} {error}"
        if "authorization" in words.lower() or "authentication" in words.lower():
            return errors.StagingDenied(f"the object store at {self.address} refuses our login; check HOLDFAST_NATS_…")
        why = self._last or errors.printable(str(error))[:_SHOWN] or type(error).__name__
        return errors.StagingUnavailable(f"there is no object store at {self.address}: {why}")

    async def aclose(self) -> None:
        if self._client is None:
            return
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
            with contextlib.suppress(Exception):
                await self._client.close()
            return
        # A server that takes no bytes would keep the socket open until it does.
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    # --- messages

    @property
    def max_payload(self) -> int:
        return int(self._client.max_payload)

    @property
    def lost(self) -> bool:
        return self._lost is not None or self._client is None or self._client.is_closed

    def check(self, box: Mailbox) -> None:
        """Raises:
        StagingDenied, StagingLost: nothing more will come.
        """
        for text in self._denied:  # they come late, and say only what they are about
            if any(f'"{subject}"' in text.lower() for subject in box.subjects):
                raise errors.StagingDenied(f"the object store at {self.address} does not allow it: {text[:_SHOWN]}")
        if self.lost:
            why = self._lost or "the connection to it broke"
            raise errors.StagingLost(f"the object store at {self.address} went away: {why}")

    @asynccontextmanager
    async def mailbox(self) -> AsyncIterator[Mailbox]:
        from nats.errors import Error

        box = Mailbox(self, f"{self._inbox}.{secrets.token_hex(6)}")
        self.check(box)
        self._boxes.add(box)
        subscription: Any = None
        try:
            with self.deadline():
                try:
                    # One for each: pieces come under the subject that they are stored under, and not under the box's.
                    subscription = await self._client.subscribe(
                        box.subject, cb=box.put, pending_bytes_limit=_MAX_WAITING_BYTES
                    )
                except (Error, OSError) as error:
                    self._broke(error, box)
            yield box
        finally:
            self._boxes.discard(box)
            if subscription is not None:
                with anyio.move_on_after(_CLOSING_SECONDS, shield=True), contextlib.suppress(Error, OSError):
                    await subscription.unsubscribe()

    async def publish(
        self, subject: str, payload: bytes, box: Mailbox, headers: Mapping[str, str] | None = None
    ) -> None:
        from nats.errors import Error

        box.subjects.add(subject.lower())
        self.check(box)
        with self.deadline():
            try:
                await self._client.publish(subject, payload, box.subject, dict(headers) if headers else None)
            except (Error, OSError) as error:
                self._broke(error, box)

    def _broke(self, error: Exception, box: Mailbox) -> NoReturn:
        self._lost = self._lost or errors.printable(str(error))[:_SHOWN]
        self.check(box)
        raise error

    async def ask(
        self, subject: str, request: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What JetStream answers. Its errors come as they are, under `error`."""
        payload = request if isinstance(request, bytes) else json.dumps(request).encode()
        async with self.mailbox() as box:
            await self.publish(subject, payload, box, headers)
            return await box.answer()

    @contextmanager
    def deadline(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self.patience):
                yield
        except TimeoutError:
            raise errors.StagingLost(
                f"the object store at {self.address} did not answer within {self.patience:g} s"
            ) from None


class Mailbox:
    """Where the answers to one caller's messages arrive."""

    def __init__(self, link: Link, subject: str) -> None:
        self.subject = subject
        self.subjects = {subject.lower()}
        """what a refusal of the server may be about"""
        self._link = link
        self._messages: deque[Any] = deque()
        self._news: anyio.Event | None = None

    def __len__(self) -> int:
        return len(self._messages)

    async def put(self, message: Any) -> None:
        self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        if self._news is not None:
            self._news.set()

    async def receive(self) -> Any:
        """The next message.

        Raises:
            StagingLost: none came in time, or the connection broke.
            StagingDenied: the server refused what we sent or asked for.
        """
        if not self._messages:
            with self._link.deadline():
                while not self._messages:
                    self._link.check(self)
                    self._news = anyio.Event()
                    await self._news.wait()
        return self._messages.popleft()

    async def answer(self) -> dict[str, Any]:
        """The next message, which is JSON."""
        message = await self.receive()
        if status(message) == "503":
            raise errors.StagingUnavailable(f"{self._link.address} has no JetStream, or no such bucket")
        try:
            found = json.loads(message.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise errors.StagingLost(f"the object store at {self._link.address} sent an answer that is none")
        return found


def status(message: Any) -> str | None:
    """The code of a message from the server itself: 503 no responders, 404 nothing there, 408 time is over …"""
    headers = message.headers
    return str(headers["Status"]) if headers and "Status" in headers and not message.data else None


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Link]:
    """A connection to the first of the servers that answers.

    Raises:
        StagingUnavailable: none is configured or answers, or nats-py is not installed.
        StagingDenied: the login is refused.
        ConfigError: the login or the certificates are not as they should be.
    """
    if not settings.nats_url:
        raise errors.StagingUnavailable("no object store is configured; the operator sets HOLDFAST_NATS_URL")
    if not hasattr(current_token().native_token, "create_task"):  # as a loop of asyncio has it
        raise errors.StagingUnavailable("staging needs asyncio, and this is another event loop")
    try:
        import nats  # noqa: F401  only whether it is there
    except ImportError as error:
        raise errors.StagingUnavailable("staging needs the package nats-py; install holdfast[nats]") from error
    link = Link(",".join(settings.nats_url), settings.staging_timeout)
    try:
        await link.open(settings)
        yield link
    finally:
        await link.aclose()

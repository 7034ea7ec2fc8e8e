"""The real NATS server of the testbed, a bucket of each test's own, and sessions on the engine `local`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import nats
import pytest
from nats.js.errors import NotFoundError

from holdfast import aio
from holdfast.config import settings
from holdfast.staging.objects import StagedFile
from holdfast.staging.reach import Place
from holdfast.staging.store import Store, open_store
from tests.testbed import require


@pytest.fixture
def anyio_backend() -> str:
    """nats-py is asyncio's."""
    return "asyncio"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket that Holdfast is configured for; it does not exist yet."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_NATS_", "HOLDFAST_STAGING_"))]:
        monkeypatch.delenv(name)
    name = f"hf-{secrets.token_hex(8)}"
    monkeypatch.setenv("HOLDFAST_NATS_URL", require("nats")["url"])
    monkeypatch.setenv("HOLDFAST_STAGING_BUCKET", name)
    return name


class Outside:
    """What nats-py sees and does, beside us."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client, self.bucket = client, bucket
        self.stream = f"OBJ_{bucket}"

    async def store(self) -> Any:
        return await self.client.jetstream().object_store(self.bucket)

    async def make(self) -> Any:
        return await self.client.jetstream().create_object_store(self.bucket)

    async def info(self) -> Any:
        return await self.client.jetstream().stream_info(self.stream)

    async def subjects(self) -> dict[str, int]:
        """Subject -> messages, of all that is in the bucket."""
        asked = json.dumps({"subjects_filter": ">"}).encode()
        answer = await self.client.request(f"$JS.API.STREAM.INFO.{self.stream}", asked)
        return dict(json.loads(answer.data)["state"].get("subjects") or {})

    async def pieces(self) -> int:
        return sum(count for subject, count in (await self.subjects()).items() if ".C." in subject)

    async def consumers(self) -> int:
        """How many there are; one that is on its way out is waited for."""
        with anyio.move_on_after(5):
            while (await self.info()).state.consumer_count:
                await anyio.sleep(0.02)
        return int((await self.info()).state.consumer_count)

    async def record(self, name: str) -> dict[str, Any]:
        message = await self.client.jetstream().get_last_msg(self.stream, self.subject(name))
        return dict(json.loads(message.data))

    def subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def say(self, name: str, record: dict[str, Any] | bytes) -> None:
        """Write a record as it must not be."""
        data = record if isinstance(record, bytes) else json.dumps(record).encode()
        await self.client.jetstream().publish(self.subject(name), data, headers={"Nats-Rollup": "sub"})

    async def delete_piece(self, nuid: str, number: int) -> None:
        """Remove one piece, the first is 0."""
        found = []
        context = self.client.jetstream()
        state = (await self.info()).state
        for sequence in range(state.first_seq, state.last_seq + 1):
            try:
                message = await context.get_msg(self.stream, sequence)
            except NotFoundError:
                continue
            if message.subject == f"$O.{self.bucket}.C.{nuid}":
                found.append(sequence)
        await context.delete_msg(self.stream, found[number])


@pytest.fixture
async def outside(bucket: str) -> AsyncIterator[Outside]:
    """Another client; what is in the bucket goes with the test."""
    client = await nats.connect(require("nats")["url"])
    try:
        yield Outside(client, bucket)
    finally:
        for name in (bucket, f"{bucket}-other"):
            with contextlib.suppress(NotFoundError):
                await client.jetstream().delete_object_store(name)
        await client.close()


@pytest.fixture
async def store(outside: Outside) -> AsyncIterator[Store]:
    async with open_store(settings()) as opened:
        yield opened


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine `local`, with a state folder and an owner of the test's own."""
    require("bubblewrap")
    state = tempfile.mkdtemp(dir="/tmp", prefix="hf")
    monkeypatch.setenv("HOLDFAST_STATE_DIR", state)
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    monkeypatch.setenv("HOLDFAST_ENGINE", "local")
    yield "local"
    assert not list(Path(state).glob("sessions/*")), "sessions were left"
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
async def box(local: str, outside: Outside) -> AsyncIterator[aio.Session]:
    async with aio.open_session() as opened:
        yield opened


async def put(store: Store, place: Place, content: bytes) -> StagedFile:
    async with store.writing(place) as writing:
        await writing.add(content)
        return await writing.commit()


async def get(store: Store, place: Place) -> bytes:
    out = bytearray()
    async with store.reading(await store.info(place)) as pieces:
        async for piece in pieces:
            out += piece
    return bytes(out)

from __future__ import annotations

import os
import uuid

import nats
import pytest
from nats.js.errors import ObjectNotFoundError

from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


async def test_an_object_of_10_mb_is_stored_and_returned() -> None:
    content = os.urandom(10_000_000)
    bucket = f"canary-{uuid.uuid4().hex}"
    client = await nats.connect(require("nats")["url"])
    try:
        store = await client.jetstream().create_object_store(bucket)
        await store.put("big", content)
        assert (await store.get("big")).data == content
        with pytest.raises(ObjectNotFoundError):
            await store.get("never stored")
    finally:
        await client.jetstream().delete_object_store(bucket)
        await client.close()

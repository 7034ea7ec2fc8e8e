"""What does a staged file cost beyond nats-py's own get and put of the same object?

From 1 MB to 1 GB, on one real server in one run: ours between the store and a session's workspace, with the digest
checked and the connection made anew for each file; nats-py's between the store and a file of this machine, over a
connection that is there.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import nats
from _measure import Contest, Row, chosen_engines, main, quick

from holdfast import Limits, aio
from testbed import settings

MB = 1 << 20
SIZES = (MB, 100 * MB, 1024 * MB)
LIMITS = Limits(workspace_mb=2200, max_file_size_bytes=1100 * MB)
GET, PUT, GOAL = "nats-py: get", "nats-py: put", "1.3x"


async def measure(rounds: int) -> list[Row]:
    found = (settings.read() or {}).get("nats")
    if found is None:
        raise SystemExit("the testbed has no NATS server; call testbed/up nats")
    bucket = f"bench-{secrets.token_hex(4)}"
    os.environ["HOLDFAST_NATS_URL"], os.environ["HOLDFAST_STAGING_BUCKET"] = found["url"], bucket
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        client = await nats.connect(found["url"])
        stack.push_async_callback(client.close)
        stream = client.jetstream(timeout=60)  # its own patience of 5 s is not enough on a machine that is busy
        store = await stream.create_object_store(bucket)
        stack.push_async_callback(stream.delete_object_store, bucket)
        boxes = {
            engine: await stack.enter_async_context(aio.open_session(engine=engine, limits=LIMITS))
            for engine in chosen_engines()
        }
        for size in SIZES[:2] if quick() else SIZES:
            with (folder / "in").open("wb") as file:
                for _ in range(size // MB):
                    file.write(os.urandom(MB))
            await _put(store, folder / "in")
            into, out = Contest("out of the store", size), Contest("into the store", size)
            into.floor(GET, partial(_get, store, folder / "out"))
            out.floor(PUT, partial(_put, store, folder / "in"))
            for engine, box in boxes.items():
                into.ours(f"holdfast, {engine}: stage", partial(box.stage, "object", "object"), GET, GOAL)
                out.ours(f"holdfast, {engine}: publish", partial(box.publish, "object", "ours"), PUT, GOAL)
            several = rounds if size == MB else max(3, rounds // 5)
            for contest in (into, out):
                rows += await contest.in_turns(several, 60)
            for box in boxes.values():
                await box.delete("object")
    return rows


async def _put(store: Any, source: Path) -> None:
    with source.open("rb") as file:
        await store.put("object", file)


async def _get(store: Any, target: Path) -> None:
    with target.open("wb") as file:
        await store.get("object", writeinto=file)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=20, engines=("local", "docker"), quick_rounds=3)

"""A large file from a user to an agent and back, through a NATS Object Store and past the model.

    HOLDFAST_NATS_URL=nats://127.0.0.1:4222 python examples/staging.py

    user ── upload ──► object store ── sandbox_stage_file ────► sandbox
    user ◄─ download ─ object store ◄─ sandbox_publish_file ──  sandbox

The user has only a NATS client (here nats-py; the command line `nats object put` does the same). The agent has only its
tools, and what an agent would decide is written down here. A real bucket is kept; this one goes when all is shown.
"""

from __future__ import annotations

import io
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import nats
from first_run import block, fact, heading, verdict

from holdfast import ExecutionContext, SandboxError, aio

ROWS = 500_000
PROGRAM = """\
import csv, gzip
totals = {}
with open("in/sales.csv", newline="") as rows, gzip.open("out/large.csv.gz", "wt", newline="") as large:
    writer = csv.writer(large)
    for region, amount in csv.reader(rows):
        totals[region] = totals.get(region, 0) + int(amount)
        if int(amount) > 500:
            writer.writerow((region, amount))
for region in sorted(totals):
    print(region, totals[region])
"""


class User:
    """Knows the store, and nothing of sandboxes."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    async def __aenter__(self) -> User:
        login = {"user": os.environ.get("HOLDFAST_NATS_USER"), "password": os.environ.get("HOLDFAST_NATS_PASSWORD")}
        self._client = await nats.connect(os.environ["HOLDFAST_NATS_URL"], **login)
        self._store = await self._client.jetstream().create_object_store(self._bucket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.jetstream().delete_object_store(self._bucket)
        await self._client.close()

    async def upload(self, key: str, content: bytes) -> None:
        await self._store.put(key, io.BytesIO(content))

    async def download(self, key: str) -> bytes:
        found = io.BytesIO()
        await self._store.get(key, writeinto=found)
        return found.getvalue()


def sales() -> tuple[bytes, dict[str, int]]:
    """Rows as CSV, and what a program must find in them."""
    totals: dict[str, int] = {}
    lines = []
    for number in range(ROWS):
        region, amount = ("north", "east", "south", "west")[number % 4], number * 7919 % 1000
        totals[region] = totals.get(region, 0) + amount
        lines.append(f"{region},{amount}\r\n")
    return "".join(lines).encode(), totals


async def agent(workflow: str) -> str:
    """What the agent does; the key of what it has published, and what its program has printed."""
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "analyst.prompt"
        prompt.write_text(
            "---\nsandbox:\n  mode: code\n  runtime: python\n---\nYou analyse files of the object store.\n"
        )
        async with await aio.toolset(prompt, context=ExecutionContext(workflow_run_id=workflow)) as tools:

            async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
                result = await tools.call(name, arguments)
                shown = {key: result[key] for key in ("file_key", "path", "size_bytes", "duration_ms") if key in result}
                verdict(result["ok"], f"{name} {shown or ''}{result.get('error', '')}")
                if not result["ok"]:
                    raise SystemExit(1)
                return result

            await call("sandbox_stage_file", {"file_key": "sales.csv", "path": "in/sales.csv"})
            await call("sandbox_fs_write", {"path": "out/analyse.py", "contents": PROGRAM})
            found = await call("sandbox_exec", {"cmd": ["python3", "out/analyse.py"], "timeout_seconds": 60})
            block(found["stdout"])
            published = await call("sandbox_publish_file", {"path": "out/large.csv.gz"})
            return str(published["file_key"]) + "\n" + str(found["stdout"])


async def main() -> int:
    if not os.environ.get("HOLDFAST_NATS_URL"):
        print("no object store is configured; set HOLDFAST_NATS_URL, such as nats://127.0.0.1:4222", file=sys.stderr)
        return 2
    bucket = os.environ.setdefault("HOLDFAST_STAGING_BUCKET", f"example-{secrets.token_hex(4)}")
    workflow = f"staging-{secrets.token_hex(4)}"
    content, totals = sales()
    heading("A file from a user to an agent and back")
    async with User(bucket) as user:
        try:
            started = time.perf_counter()
            await user.upload(f"workflows/{workflow}/sales.csv", content)
            fact("user", f"uploads workflows/{workflow}/sales.csv, {len(content)} bytes")
            key, _, said = (await agent(workflow)).partition("\n")
            result = await user.download(key)
            fact("user", f"downloads {key}, {len(result)} bytes")
        finally:
            ended = await aio.end_workflow(workflow)
    expected = "".join(f"{region} {totals[region]}\n" for region in sorted(totals))
    good = said == expected and result.startswith(b"\x1f\x8b") and ended == 1
    took = time.perf_counter() - started
    verdict(good, f"none of it went through the model; {took:.1f} s, {ended} session ended, the bucket is gone")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        raise SystemExit(anyio.run(main))
    except SandboxError as error:
        print(f"✘ {error}", file=sys.stderr)
        raise SystemExit(125) from None

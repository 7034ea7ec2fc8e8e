"""The format is everybody's: nats-py and the Go client, of which the command line `nats` is made, are understood and
understand us."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest
from nats.js.errors import ObjectNotFoundError

from holdfast import errors
from holdfast.staging.reach import Place
from holdfast.staging.store import Store
from tests.testbed import require, without

from .conftest import Outside, get, put

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(180)]

_SOURCE = Path(__file__).parent / "goclient"
NAMES = ["plain.txt", "a b/ü/\N{SNOWMAN}", "$O.x.>", "x" * 300]
SIZES = [0, 1, 131072, 300_001]


def go_client() -> Path:
    """The program, built once for each state of its sources."""
    if not shutil.which("go"):
        without("the Go client is built with go, which is not on PATH. Next: call testbed/up.")
    content = b"".join((_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"nats-{hashlib.sha256(content).hexdigest()[:16]}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            made = program.with_suffix(".new")
            subprocess.run(["go", "build", "-o", made, "."], cwd=_SOURCE, check=True, capture_output=True)
            made.rename(program)
    return program


class Go:
    def __init__(self, bucket: str) -> None:
        self.words = [str(go_client()), require("nats")["url"], bucket]

    async def __call__(self, *words: str, stdin: bytes = b"") -> bytes:
        done = await anyio.run_process([*self.words, *words], input=stdin, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.parametrize(("name", "size"), [*zip(NAMES, SIZES, strict=True)])
async def test_nats_py_both_ways(store: Store, outside: Outside, bucket: str, name: str, size: int) -> None:
    content = os.urandom(size)
    await put(store, Place(bucket, name), content)
    theirs = await outside.store()
    found = await theirs.get(name)
    assert (found.data or b"", found.info.size) == (content, size)
    await theirs.put(name, content[::-1])
    assert await get(store, Place(bucket, name)) == content[::-1]
    assert await outside.pieces() == -(-size // 131072)
    await theirs.delete(name)
    with pytest.raises(errors.StagedFileNotFound):
        await store.info(Place(bucket, name))
    await theirs.put(name, content)
    await store.delete(Place(bucket, name))
    with pytest.raises(ObjectNotFoundError):
        await theirs.get(name)


@pytest.mark.parametrize(("name", "size"), [*zip(NAMES, SIZES, strict=True)])
async def test_go_both_ways(store: Store, outside: Outside, bucket: str, name: str, size: int) -> None:
    go, content = Go(bucket), os.urandom(size)
    await put(store, Place(bucket, name), content)
    assert await go("get", name) == content
    (listed,) = json.loads(await go("list"))
    assert (listed["name"], listed["size"]) == (name, size)
    await go("put", name, stdin=content[::-1])
    assert await get(store, Place(bucket, name)) == content[::-1]
    assert await outside.pieces() == (await outside.record(name)).get("chunks", 0)  # of any size, and ours are gone
    assert [(file.name, file.size_bytes) for file in (await store.list(bucket)).files] == [(name, size)]
    await go("delete", name)
    with pytest.raises(errors.StagedFileNotFound):
        await store.info(Place(bucket, name))
    await go("put", name, stdin=content)
    await store.delete(Place(bucket, name))
    assert await outside.pieces() == 0
    assert b"object not found" in (await anyio.run_process([*go.words, "get", name], check=False)).stderr


async def test_a_bucket_and_a_link_that_go_made(store: Store, outside: Outside, bucket: str) -> None:
    go = Go(bucket)
    await go("make")
    await put(store, Place(bucket, "file"), b"content")
    await go("link", "link", "file")
    assert await go("get", "link") == b"content"
    with pytest.raises(errors.StagedFileIsLink, match="links are not followed"):
        await get(store, Place(bucket, "link"))
    await store.delete(Place(bucket, "link"))
    assert await get(store, Place(bucket, "file")) == b"content"

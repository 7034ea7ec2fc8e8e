"""The store itself, on the real server: what is put is what is got, and nothing else is left."""

from __future__ import annotations

import os
import time

import anyio
import pytest

from holdfast import errors
from holdfast.config import settings
from holdfast.staging.reach import Place
from holdfast.staging.store import Store, open_store

from .conftest import Outside, get, put

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

PIECE = 128 << 10
ODD = [
    "a b/ü/\N{SNOWMAN}.csv",
    "$O.x.M.>",
    "*",
    ">",
    "a.b..c",
    "%2F/..hidden",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe",
    "'\"\\;$(x)",
    "x" * 1024,
]


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3_000_000])
async def test_what_is_put_is_got(store: Store, outside: Outside, bucket: str, size: int) -> None:
    content = os.urandom(size)
    file = await put(store, Place(bucket, "file"), content)
    assert await get(store, Place(bucket, "file")) == content
    found = await store.info(Place(bucket, "file"))
    assert (found.size_bytes, found.digest, found.nuid) == (size, file.digest, file.nuid)
    assert abs(found.modified - time.time()) < 60
    assert await outside.pieces() == -(-size // PIECE)
    assert await outside.consumers() == 0


@pytest.mark.parametrize("name", ODD)
async def test_any_name_is_only_a_name(store: Store, outside: Outside, bucket: str, name: str) -> None:
    await put(store, Place(bucket, "bystander"), b"old")
    await put(store, Place(bucket, name), b"new")
    assert await get(store, Place(bucket, name)) == b"new"
    assert {file.name for file in (await store.list(bucket)).files} == {"bystander", name}
    await store.delete(Place(bucket, name))
    assert await get(store, Place(bucket, "bystander")) == b"old"
    assert await outside.pieces() == 1


async def test_a_replaced_file_leaves_nothing(store: Store, outside: Outside, bucket: str) -> None:
    for size in (5 * PIECE, 2 * PIECE, 0, PIECE):
        await put(store, Place(bucket, "file"), bytes(size))
        assert await outside.pieces() == size // PIECE
    assert len(await get(store, Place(bucket, "file"))) == PIECE
    await store.delete(Place(bucket, "file"))
    assert await outside.pieces() == 0
    with pytest.raises(errors.StagedFileNotFound, match="file"):
        await store.info(Place(bucket, "file"))
    with pytest.raises(errors.StagedFileNotFound):
        await store.delete(Place(bucket, "file"))
    await put(store, Place(bucket, "file"), b"again")
    assert await get(store, Place(bucket, "file")) == b"again"


async def test_of_many_writers_at_once_one_remains_with_its_pieces_only(
    store: Store, outside: Outside, bucket: str
) -> None:
    await put(store, Place(bucket, "file"), b"first")
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(put, store, Place(bucket, "file"), bytes([number]) * 2 * PIECE)
    content = await get(store, Place(bucket, "file"))
    assert len(content) == 2 * PIECE and len(set(content)) == 1
    assert await outside.pieces() == 2


async def test_a_list_is_sorted_bounded_and_without_what_is_gone(store: Store, outside: Outside, bucket: str) -> None:
    assert await store.list(bucket) == ((), False, 0)
    for name in ("b/2", "b/1", "a", "c"):
        await put(store, Place(bucket, name), name.encode())
    await store.delete(Place(bucket, "c"))
    await outside.say("broken", b"no json")
    listed = await store.list(bucket)
    assert ([file.name for file in listed.files], listed.truncated, listed.unreadable) == (
        ["a", "b/1", "b/2"],
        False,
        1,
    )
    assert [file.name for file in (await store.list(bucket, "b/")).files] == ["b/1", "b/2"]
    assert (await store.list(bucket, most=2)).truncated
    assert await outside.consumers() == 0


async def test_our_bucket_is_made_and_no_other(
    store: Store, outside: Outside, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_TTL", "3600")
    with pytest.raises(errors.StagedFileNotFound):
        await store.info(Place(bucket, "file"))
    with pytest.raises(errors.StagingUnavailable, match=f"no bucket {bucket}-other"):
        await put(store, Place(f"{bucket}-other", "file"), b"x")
    async with open_store(settings()) as again:
        await put(again, Place(bucket, "file"), b"x")
    config = (await outside.info()).config
    assert config.max_age == 3600
    assert config.allow_rollup_hdrs


async def test_a_file_of_staging_max_bytes_is_taken_and_a_larger_one_leaves_nothing(
    outside: Outside, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_MAX_BYTES", str(4 * PIECE))
    async with open_store(settings()) as store:
        await put(store, Place(bucket, "fits"), bytes(4 * PIECE))
        with pytest.raises(errors.FileTooLarge, match="HOLDFAST_STAGING_MAX_BYTES"):
            await put(store, Place(bucket, "more"), bytes(4 * PIECE + 1))
    assert await outside.pieces() == 4


async def test_a_full_bucket_says_so_and_keeps_the_old_file(outside: Outside, bucket: str) -> None:
    context = outside.client.jetstream()
    await outside.make()
    config = (await outside.info()).config
    config.max_bytes = 6 * PIECE
    await context.update_stream(config)
    async with open_store(settings()) as store:
        await put(store, Place(bucket, "file"), bytes(2 * PIECE))
        with pytest.raises(errors.StagingFull):
            await put(store, Place(bucket, "file"), bytes(20 * PIECE))
        assert len(await get(store, Place(bucket, "file"))) == 2 * PIECE
    assert await outside.pieces() == 2

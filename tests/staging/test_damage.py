"""What is wrong in the store is an error with a name, and the target in the sandbox is as it was (T64)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from holdfast import aio, errors
from holdfast.staging.reach import Place
from holdfast.staging.store import Store

from .conftest import Outside, get, put

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]

PIECE = 128 << 10
CONTENT = bytes(range(256)) * (5 * PIECE // 256)
Damage = Callable[[Outside, dict[str, Any]], Awaitable[None]]


def record(**changes: Any) -> Damage:
    async def write(outside: Outside, found: dict[str, Any]) -> None:
        await outside.say("file", {**found, **changes})

    return write


def raw(data: bytes) -> Damage:
    return lambda outside, found: outside.say("file", data)


def missing(number: int) -> Damage:
    return lambda outside, found: outside.delete_piece(found["nuid"], number)


async def one_more(outside: Outside, found: dict[str, Any]) -> None:
    await outside.client.jetstream().publish(f"$O.{outside.bucket}.C.{found['nuid']}", b"more")


async def other_bytes(outside: Outside, found: dict[str, Any]) -> None:
    """The right size and number of pieces, and other contents."""
    await outside.delete_piece(found["nuid"], 4)
    await outside.client.jetstream().publish(f"$O.{outside.bucket}.C.{found['nuid']}", bytes(PIECE))


async def gone(outside: Outside, found: dict[str, Any]) -> None:
    await (await outside.store()).delete("file")


async def link(outside: Outside, found: dict[str, Any]) -> None:
    other = {"bucket": f"{outside.bucket}-other", "name": "secret"}
    await outside.say("file", {"name": "file", "bucket": outside.bucket, "nuid": "x", "options": {"link": other}})


OTHER = "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(b"other").digest()).decode()
DAMAGES: dict[str, tuple[Damage, type[errors.SandboxError]]] = {
    "first piece missing": (missing(0), errors.StagedFileDamaged),
    "piece missing": (missing(2), errors.StagedFileDamaged),
    "last piece missing": (missing(4), errors.StagedFileDamaged),
    "one piece more": (one_more, errors.StagedFileDamaged),
    "other contents": (other_bytes, errors.StagedFileDamaged),
    "all pieces missing": (record(nuid="Nobody"), errors.StagedFileDamaged),
    "another digest": (record(digest=OTHER), errors.StagedFileDamaged),
    "no digest": (record(digest=""), errors.StagedFileDamaged),
    "a digest of another kind": (record(digest="MD5=AAAA"), errors.StagedFileDamaged),
    "a smaller size": (record(size=len(CONTENT) - 1), errors.StagedFileDamaged),
    "a larger size": (record(size=len(CONTENT) + 1), errors.StagedFileDamaged),
    "a negative size": (record(size=-1), errors.StagedFileDamaged),
    "a size that is no number": (record(size="1"), errors.StagedFileDamaged),
    "a huge size": (record(size=1 << 52), errors.FileTooLarge),
    "fewer pieces": (record(chunks=4), errors.StagedFileDamaged),
    "more pieces": (record(chunks=6), errors.StagedFileDamaged),
    "no pieces": (record(chunks=0), errors.StagedFileDamaged),
    "all objects' pieces": (record(nuid=">"), errors.StagedFileDamaged),
    "any object's pieces": (record(nuid="*"), errors.StagedFileDamaged),
    "another name": (record(name="other"), errors.StagedFileDamaged),
    "no record": (raw(b"\x00\xff"), errors.StagedFileDamaged),
    "a deep record": (raw(b"[" * 100_000), errors.StagedFileDamaged),
    "link": (link, errors.StagedFileIsLink),
    "deleted": (gone, errors.StagedFileNotFound),
}


@pytest.fixture
async def target(box: aio.Session, store: Store, bucket: str) -> aio.Session:
    """A session with an old file, and a new one in the store that is to replace it."""
    await box.write("in/file", b"old")
    await put(store, Place(bucket, "file"), CONTENT)
    return box


async def untouched(box: aio.Session) -> bool:
    return (
        await box.read("in/file") == b"old"
        and [entry.path for entry in await box.list(recursive=True)] == ["in", "in/file"]
        and (await box.exec("ls -A . in")).stdout == ".:\nin\n\nin:\nfile\n"
    )


async def test_what_is_whole_replaces_it(target: aio.Session, outside: Outside) -> None:
    done: list[int] = []
    staged = await target.stage("file", "in/file", on_progress=lambda now, total: done.append(now))
    assert (staged.path, staged.size_bytes, staged.file_key) == ("in/file", len(CONTENT), "file")
    assert staged.digest == (await outside.record("file"))["digest"]
    assert await target.read("in/file") == CONTENT
    assert done == sorted(done) and done[-1] == len(CONTENT)
    assert await outside.consumers() == 0


@pytest.mark.parametrize("name", DAMAGES)
async def test_damage_is_named_and_the_target_is_untouched(target: aio.Session, outside: Outside, name: str) -> None:
    damage, kind = DAMAGES[name]
    await damage(outside, await outside.record("file"))
    with pytest.raises(kind):
        await target.stage("file", "in/file")
    assert await untouched(target)
    assert await outside.consumers() == 0


async def test_a_damaged_file_can_be_replaced_and_deleted(store: Store, outside: Outside, bucket: str) -> None:
    place = Place(bucket, "file")
    for damage in (raw(b"{}"), record(nuid=">"), link):
        await put(store, place, CONTENT)
        await put(store, Place(bucket, "bystander"), b"there")
        await damage(outside, await outside.record("file"))
        await put(store, place, b"mended")
        assert await get(store, place) == b"mended"
        assert await get(store, Place(bucket, "bystander")) == b"there"


@pytest.mark.parametrize("moment", [0, 1, 3])
async def test_replaced_while_it_is_read(store: Store, bucket: str, moment: int) -> None:
    place = Place(bucket, "file")
    await put(store, place, bytes(100 * PIECE))
    with pytest.raises((errors.StagedFileChanged, errors.StagingLost)) as caught:
        async with store.reading(await store.info(place)) as pieces:
            for _ in range(moment):
                await anext(pieces)
            await put(store, place, b"new")
            async for _ in pieces:
                pass
    assert caught.type is errors.StagedFileChanged


async def test_a_size_that_does_not_fit_is_refused_before_anything_is_read(
    local: str, store: Store, outside: Outside, bucket: str
) -> None:
    from holdfast.config import Limits

    await put(store, Place(bucket, "file"), bytes(3 << 20))
    seen: list[int] = []
    async with aio.open_session(limits=Limits(max_file_size_bytes=3 << 20, workspace_mb=16)) as box:
        await box.stage("file", "file")
        await put(store, Place(bucket, "large"), bytes((3 << 20) + 1))
        with pytest.raises(errors.FileTooLarge, match="3145728"):
            await box.stage("large", "file", on_progress=lambda now, total: seen.append(now))
        await box.exec("for n in 1 2 3 4; do head -c 3M /dev/zero > $n; done")
        with pytest.raises(errors.WorkspaceFull):
            await box.stage("file", "other", on_progress=lambda now, total: seen.append(now))
        assert not seen
        assert "other" not in {entry.path for entry in await box.list()}


async def test_paths_are_kept_within_the_workspace(target: aio.Session) -> None:
    await target.exec("ln -s /etc etc; ln -s /tmp/elsewhere in/link")
    for path in ("../file", "/etc/file", "etc/file", "in"):
        with pytest.raises(errors.FileError):
            await target.stage("file", path)
        with pytest.raises(errors.FileError):
            await target.publish(path, "out")
    with pytest.raises(errors.SandboxFileExists):
        await target.stage("file", "in/file", overwrite=False)
    await target.exec("rm etc in/link")
    assert await untouched(target)
    with anyio.fail_after(10):
        await target.exec("mkfifo pipe")
        with pytest.raises(errors.NotRegularFile):
            await target.publish("pipe", "out")

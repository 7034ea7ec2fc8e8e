"""Who is cancelled, cut off or kept waiting leaves nothing: no pieces in the store, no file in the sandbox (T65)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from holdfast import aio, errors
from holdfast.config import settings
from holdfast.staging.reach import Place
from holdfast.staging.store import Store, open_store
from tests.testbed import require

from .conftest import Outside, get, put
from .proxy import Proxy, proxy

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]

PIECE = 128 << 10
LARGE = 200 * PIECE


@pytest.fixture
async def way(bucket: str, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """What Holdfast takes for the server."""
    async with proxy(require("nats")["url"]) as made:
        monkeypatch.setenv("HOLDFAST_NATS_URL", made.url)
        monkeypatch.setenv("HOLDFAST_STAGING_TIMEOUT", "1.5")
        yield made


async def filled(box: aio.Session) -> None:
    assert (await box.exec(f"head -c {LARGE} /dev/urandom > big")).ok


@pytest.mark.parametrize("pieces", [0, 1, 40, 150])
async def test_a_cancelled_put_leaves_nothing(store: Store, outside: Outside, bucket: str, pieces: int) -> None:
    place = Place(bucket, "file")
    await put(store, place, b"old")
    with anyio.CancelScope() as scope:
        async with store.writing(place) as writing:
            for _ in range(pieces):
                await writing.add(bytes(PIECE))
            scope.cancel()
            await writing.add(bytes(PIECE))
            await writing.commit()
    assert scope.cancelled_caught
    assert await outside.pieces() == 1
    assert await get(store, place) == b"old"


async def test_a_put_that_fails_leaves_nothing(store: Store, outside: Outside, bucket: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with store.writing(Place(bucket, "file")) as writing:
            await writing.add(bytes(50 * PIECE))
            raise ZeroDivisionError
    assert await outside.pieces() == 0
    async with store.writing(Place(bucket, "file")) as writing:
        await writing.add(b"never committed")
    assert await outside.subjects() == {}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
async def test_a_cancelled_publish_leaves_nothing(
    box: aio.Session, outside: Outside, bucket: str, share: float
) -> None:
    await filled(box)
    with anyio.CancelScope() as scope:

        def tell(done: int, total: int | None) -> None:
            if done >= share * LARGE:
                scope.cancel()

        await box.publish("big", on_progress=tell)
    assert scope.cancelled_caught
    assert await outside.subjects() == {}
    await box.publish("big")
    assert await outside.pieces() == LARGE // PIECE


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
async def test_a_cancelled_stage_leaves_nothing(
    box: aio.Session, store: Store, outside: Outside, bucket: str, share: float
) -> None:
    await put(store, Place(bucket, "big"), bytes(LARGE))
    await box.write("in/big", b"old")
    with anyio.CancelScope() as scope:

        def tell(done: int, total: int | None) -> None:
            if done >= share * LARGE:
                scope.cancel()

        await box.stage("big", "in/big", on_progress=tell)
    assert scope.cancelled_caught
    assert await box.read("in/big") == b"old"
    assert (await box.exec("ls -A in")).stdout == "big\n"
    assert await outside.consumers() == 0
    assert (await box.stage("big", "in/big")).size_bytes == LARGE


async def stage_big(box: aio.Session) -> None:
    await box.stage("big", "in/big")


async def publish_big(box: aio.Session) -> None:
    await box.publish("big", "published")


Faulty = Callable[[aio.Session], Awaitable[None]]


@pytest.mark.parametrize("work", [stage_big, publish_big])
@pytest.mark.parametrize("fault", ["stall", "drip", "gone"])
async def test_a_server_that_does_not_go_on_is_given_up(
    store: Store, outside: Outside, way: Proxy, box: aio.Session, work: Faulty, fault: str
) -> None:
    """Within a deadline, with its name, and the target untouched."""
    await put(store, Place(outside.bucket, "big"), bytes(LARGE))
    await filled(box)
    await box.write("in/big", b"old")
    if fault == "stall":
        way.stall_after = LARGE // 3
    elif fault == "gone":
        way.refuse = True
    else:
        way.pause = 0.05
    with anyio.fail_after(30), pytest.raises((errors.StagingLost, errors.StagingUnavailable)):
        await work(box)
    assert await box.read("in/big") == b"old"
    assert (await box.exec("ls -A . in")).stdout == ".:\nbig\nin\n\nin:\nbig\n"
    assert [file.name for file in (await store.list(outside.bucket)).files] == ["big"]
    way.stall_after, way.pause, way.refuse = None, 0, False
    await work(box)
    assert await box.read("in/big") != b"old" or work is publish_big


async def test_a_connection_that_breaks_in_a_put_leaves_nothing(outside: Outside, bucket: str, way: Proxy) -> None:
    """Another one is made, to remove what the first has brought there."""
    async with open_store(settings()) as store:
        await put(store, Place(bucket, "file"), b"old")
        way.cut_after = way.passed + 60 * PIECE
        with pytest.raises(errors.StagingLost):
            await put(store, Place(bucket, "file"), bytes(LARGE))
    assert way.broken == 1
    assert await outside.pieces() == 1
    async with open_store(settings()) as store:
        assert await get(store, Place(bucket, "file")) == b"old"


async def test_a_connection_that_breaks_in_a_stage_leaves_the_target(
    store: Store, way: Proxy, box: aio.Session, bucket: str
) -> None:
    await put(store, Place(bucket, "big"), bytes(LARGE))
    await box.write("in/big", b"old")
    way.stall_after = 60 * PIECE
    with pytest.raises(errors.StagingLost):
        await box.stage("big", "in/big")
    assert await box.read("in/big") == b"old"


async def test_without_a_store_the_error_says_what_to_set(
    local: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_NATS_URL", "nats://127.0.0.1:1")
    async with aio.open_session() as box:
        await box.write("a", b"a")
        with pytest.raises(errors.StagingUnavailable, match=r"127\.0\.0\.1:1:"):
            await box.publish("a")
    monkeypatch.delenv("HOLDFAST_NATS_URL")
    async with aio.open_session() as box:
        await box.write("a", b"a")
        with pytest.raises(errors.StagingUnavailable, match="HOLDFAST_NATS_URL"):
            await box.publish("a")


async def cancelled_after(passes: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Whether `work` was cut off after so many turns of the event loop."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                for _ in range(passes):
                    await anyio.sleep(0.0005)
                scope.cancel()

            tasks.start_soon(cut)
            await work()
            tasks.cancel_scope.cancel()
    return scope.cancelled_caught


async def test_at_whatever_moment_a_put_is_cancelled_one_whole_file_is_there(
    store: Store, outside: Outside, bucket: str
) -> None:
    place, small, large = Place(bucket, "file"), b"small", bytes(3 * PIECE)
    await put(store, place, small)
    outcomes: set[tuple[bool, bool]] = set()
    for passes in range(40):
        before = await get(store, place)
        after = large if before == small else small
        cut = await cancelled_after(passes, lambda after=after: put(store, place, after))  # type: ignore[misc]
        now = await get(store, place)
        assert now == after or (cut and now == before)
        assert await outside.pieces() == (3 if now == large else 1)
        outcomes.add((cut, now == after))
    assert (True, False) in outcomes and (False, True) in outcomes


async def test_at_whatever_moment_a_stage_is_cancelled_one_whole_file_is_there(
    box: aio.Session, store: Store, outside: Outside, bucket: str
) -> None:
    for name in ("even", "odd"):
        await put(store, Place(bucket, name), name.encode() * PIECE)
    await box.stage("even", "in/file")
    current, outcomes = "even", set[bool]()
    for passes in range(0, 80, 2):
        new = "odd" if current == "even" else "even"
        cut = await cancelled_after(passes, lambda new=new: box.stage(new, "in/file"))  # type: ignore[misc]
        now = await box.read("in/file", max_bytes=1)
        assert now == new[:1].encode() or (cut and now == current[:1].encode())
        current = new if now == new[:1].encode() else current
        assert await box.read("in/file") == current.encode() * PIECE
        assert (await box.exec("ls -A in")).stdout == "file\n"
        outcomes.add(cut)
    assert outcomes == {True, False}
    assert await outside.consumers() == 0

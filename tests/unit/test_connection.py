"""The client's end of a connection: any bytes, frames in any order, calls that come and go, credit."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.guest import protocol
from holdfast.guest.client import GuestClient
from holdfast.guest.connection import Connection, frame
from holdfast.guest.protocol import HEADER, MAX_DATA_BYTES, WINDOW_BYTES, Kind
from tests.unit.scripted import COMMAND, ENDED, HELLO, Guest, Memory, connected

pytestmark = pytest.mark.anyio

BACKENDS = ["asyncio", "trio"]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


frames = st.builds(
    lambda stream, kind, payload, lie: HEADER.pack(lie if lie is not None else len(payload), stream, kind) + payload,
    st.sampled_from([0, 1, 1, 1, 2, 9, 2**32 - 1]),
    st.integers(0, 8),
    st.binary(max_size=64) | st.just(ENDED.model_dump_json().encode()),
    st.none() | st.none() | st.none() | st.integers(0, 2**32 - 1),
)


async def _survives(data: bytes, greeted: bool) -> None:
    guest = Guest(Memory())
    if greeted:
        guest.say(0, HELLO)
    guest.raw(data)
    guest.end()
    with anyio.fail_after(10), contextlib.suppress(errors.SandboxError):
        client = GuestClient(await Connection.open(guest.wire))
        await client.exec(COMMAND)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("greeted", [True, False])
def test_any_bytes_are_an_answer_or_an_error_of_ours(backend: str, greeted: bool) -> None:
    @settings(deadline=None, max_examples=150)
    @given(st.binary(max_size=200) | st.lists(frames, max_size=8).map(b"".join))
    def check(data: bytes) -> None:
        anyio.run(_survives, data, greeted, backend=backend)

    check()


async def test_answers_find_their_calls_however_they_are_mixed() -> None:
    chance = random.Random(1)
    for _ in range(50):
        async with connected() as (client, guest):
            results: dict[int, int] = {}

            async def ask(number: int, client: GuestClient = client, results: dict[int, int] = results) -> None:
                results[number] = (await client.read_file(f"{number}"))[2]

            async with anyio.create_task_group() as tasks:
                for number in range(10):
                    tasks.start_soon(ask, number)
                wanted: dict[int, int] = {}
                for _ in range(10):
                    stream, _, payload = await guest.hear()
                    wanted[stream] = int(protocol.FileRead.model_validate_json(payload).path)
                pieces = b""
                for stream in chance.sample(sorted(wanted), len(wanted)):
                    entry = protocol.FileEntry(
                        path="f", kind=protocol.FileKind.FILE, size_bytes=wanted[stream], mode=0, modified_ms=0
                    )
                    sent = protocol.FileSent(entry=entry, sent_bytes=3, truncated=False)
                    pieces += frame(stream, Kind.DATA, b"abc")
                    pieces += frame(stream, Kind.MESSAGE, sent.model_dump_json().encode())
                while pieces:
                    size = chance.randrange(1, 200)
                    guest.raw(pieces[:size])
                    pieces = pieces[size:]
                    if chance.random() < 0.5:
                        await anyio.lowlevel.checkpoint()
            assert results == {number: number for number in range(10)}


async def test_reading_is_passed_on_when_those_who_read_leave() -> None:
    """Whoever is answered or cancelled, in whatever order: whoever still waits gets its answer."""
    chance = random.Random(2)
    for _ in range(50):
        async with connected() as (client, guest):
            count = chance.randrange(2, 7)
            done: list[int] = []
            scopes = [anyio.CancelScope() for _ in range(count)]

            async def ask(
                number: int, client: GuestClient = client, scopes: Any = scopes, done: list[int] = done
            ) -> None:
                with scopes[number]:
                    await client.status()
                done.append(number)

            async def serve(guest: Guest = guest) -> None:
                while True:
                    stream, kind, _ = await guest.hear()
                    if kind is Kind.RESET:
                        guest.say(stream, protocol.Done())

            async with anyio.create_task_group() as tasks, anyio.create_task_group() as calls:
                for number in range(count):  # one after the other, so that the stream of each is known
                    calls.start_soon(ask, number)
                    assert (await guest.hear())[0] == number + 1
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(serve)
                order = chance.sample(range(count), count)
                cancelled, answered = order[: count // 2], order[count // 2 :]
                report = protocol.StatusReport.model_validate(
                    dict.fromkeys(set(protocol.StatusReport.model_fields) - {"type"}, 1)
                )
                for number in cancelled:
                    scopes[number].cancel()
                    if chance.random() < 0.5:
                        await anyio.lowlevel.checkpoint()
                joined = b"".join(
                    frame(number + 1, Kind.MESSAGE, report.model_dump_json().encode()) for number in answered[:-1]
                )
                guest.raw(joined)
                await anyio.wait_all_tasks_blocked()
                guest.say(answered[-1] + 1, report)  # the last one must have found a reader
                while len(done) < count:
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()


async def test_who_feeds_and_who_collects_are_both_woken() -> None:
    async with connected() as (client, guest), anyio.create_task_group() as tasks:
        tasks.start_soon(client.status)  # it reads for all
        await anyio.wait_all_tasks_blocked()
        await guest.hear()
        fed: list[object] = []

        async def run() -> None:
            fed.append(await client.exec(COMMAND, b"x" * (3 * WINDOW_BYTES)))

        tasks.start_soon(run)
        stream, _, _ = await guest.hear()
        got = 0
        while (heard := await guest.hear())[1] is Kind.DATA:
            got += len(heard[2])
            guest.send(stream, Kind.WINDOW, len(heard[2]).to_bytes(4, "big"))
        assert (heard[1], got) == (Kind.END, 3 * WINDOW_BYTES)
        guest.say(stream, ENDED)
        while not fed:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
        guest.say(1, protocol.Done())


async def test_credit_goes_back_as_output_is_taken() -> None:
    async with connected() as (client, guest), anyio.create_task_group() as tasks:
        taken = 0

        def take(stream: str, data: bytes) -> None:
            nonlocal taken
            taken += len(data)

        tasks.start_soon(lambda: client.exec(COMMAND, on_output=take))
        stream, _, _ = await guest.hear()
        credit = WINDOW_BYTES
        for _ in range(40):
            while credit < MAX_DATA_BYTES:
                number, kind, payload = await guest.hear()
                assert (number, kind) == (stream, Kind.WINDOW)
                credit += int.from_bytes(payload, "big")
            guest.send(stream, Kind.DATA, b"x" * MAX_DATA_BYTES)
            credit -= MAX_DATA_BYTES
        guest.say(stream, ENDED)
    assert taken == 40 * MAX_DATA_BYTES

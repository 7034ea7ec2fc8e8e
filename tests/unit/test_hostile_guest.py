"""Guests that lie, flood, fall silent or go: an error of ours each time, within bounds, and never a success."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio.testing

from holdfast import errors
from holdfast.engines.sockets import SocketStream
from holdfast.guest import protocol
from holdfast.guest.client import GuestClient
from holdfast.guest.connection import Connection, frame
from holdfast.guest.protocol import FRAME_COST, HEADER, MAX_DATA_BYTES, MAX_MESSAGE_BYTES, WINDOW_BYTES, Kind
from tests.unit.scripted import COMMAND, ENDED, HELLO, Guest, Memory, connected

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kept(size: int) -> protocol.ExecEnded:
    count = protocol.StreamCount(total_bytes=size, head_bytes=size, tail_bytes=0)
    return protocol.ExecEnded(**{**dict(ENDED), "stdout": count})


async def refused(lie: Callable[[Guest, int], Any], call: Callable[[GuestClient], Awaitable[Any]]) -> None:
    """What a guest says to the first call ends the connection, and the next call knows."""
    async with connected() as (client, guest):
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises((errors.ProtocolError, errors.SessionLost)):
                    await call(client)

            tasks.start_soon(ask)
            stream, _, _ = await guest.hear()
            lie(guest, stream)
            guest.end()
        with pytest.raises((errors.ProtocolError, errors.SessionLost)):
            await client.status()


EVENT = protocol.OutputExpired(expired_bytes=1).model_dump_json().encode()
LIES: dict[str, Callable[[Guest, int], Any]] = {
    "a message over the limit": lambda guest, at: guest.raw(HEADER.pack(MAX_MESSAGE_BYTES + 1, at, Kind.MESSAGE)),
    "data over the limit": lambda guest, at: guest.raw(HEADER.pack(MAX_DATA_BYTES + 1, at, Kind.DATA)),
    "four gigabytes": lambda guest, at: guest.raw(HEADER.pack(2**32 - 1, at, Kind.DATA)),
    "an unknown kind": lambda guest, at: guest.raw(HEADER.pack(0, at, 99)),
    "a stream of the future": lambda guest, at: guest.send(at + 1, Kind.DATA, b"x"),
    "an end with contents": lambda guest, at: guest.raw(HEADER.pack(1, at, Kind.END) + b"x"),
    "data beyond credit": lambda guest, at: guest.raw(frame(at, Kind.DATA, b"x" * MAX_DATA_BYTES) * 5),
    "frames beyond credit": lambda guest, at: guest.raw(frame(at, Kind.DATA, b"x") * (WINDOW_BYTES // FRAME_COST + 1)),
    "events beyond credit": lambda guest, at: guest.raw(frame(at, Kind.EVENT, EVENT) * 5000),
    "two answers": lambda guest, at: guest.raw(frame(at, Kind.MESSAGE, b"{}") * 2),
    "half a header": lambda guest, at: guest.raw(b"\0\0"),
    "half a frame": lambda guest, at: guest.raw(HEADER.pack(100, at, Kind.MESSAGE) + b"{"),
    "nothing": lambda guest, at: None,
}


@pytest.mark.parametrize("lie", LIES)
async def test_lies_about_frames_end_the_connection(lie: str) -> None:
    await refused(LIES[lie], lambda client: client.exec(COMMAND, on_output=lambda stream, data: None))
    await refused(LIES[lie], lambda client: client.status())


ANSWERS: dict[str, bytes] = {
    "no JSON": b"\xff\xfe",
    "deep": b"[" * 200_000,
    "deep and closed": b'{"type":"done","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a list": b"[]",
    "another answer": protocol.Done().model_dump_json().encode(),
    "an unknown type": b'{"type":"surprise"}',
    "an unknown code": b'{"type":"failure","code":"boo","message":""}',
    "wrong types": b'{"type":"exec_ended","exec_id":1,"end_cause":[]}',
    "a million digits": b'{"type":"output_expired","expired_bytes":' + b"9" * 1_000_000 + b"}",
    "an unknown field": ENDED.model_dump_json()[:-1].encode() + b',"more":1}',
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_wrong_answers_are_errors_and_the_connection_goes_on(answer: str) -> None:
    async with connected() as (client, guest):
        for call in (lambda: client.exec(COMMAND), client.list_execs, lambda: client.read_file("f")):
            async with anyio.create_task_group() as tasks:

                async def ask(call: Callable[[], Awaitable[Any]] = call) -> None:
                    with pytest.raises(errors.ProtocolError):
                        await call()

                tasks.start_soon(ask)
                stream, _, _ = await guest.hear()
                guest.send(stream, Kind.MESSAGE, ANSWERS[answer])


async def test_more_than_was_asked_for() -> None:
    async with connected() as (client, guest):
        entry = protocol.FileEntry(path="f", kind=protocol.FileKind.FILE, size_bytes=1, mode=0, modified_ms=0)
        page = protocol.FilePage(entries=[entry] * 11)
        for call, kind, payload in (
            (lambda: client.read_file("f", max_bytes=10), Kind.DATA, b"x" * 11),
            (lambda: client.read("x1", 0, max_bytes=10), Kind.DATA, b"x" * 11),
            (lambda: client.list_files(max_entries=10), Kind.EVENT, page.model_dump_json().encode()),
            (lambda: client.exec(COMMAND), Kind.DATA, b"x" * 1001),
        ):
            async with anyio.create_task_group() as tasks:

                async def ask(call: Callable[[], Awaitable[Any]] = call) -> None:
                    with pytest.raises(errors.ProtocolError):
                        await call()

                tasks.start_soon(ask)
                stream, _, _ = await guest.hear()
                guest.send(stream, kind, payload)
                assert (await guest.hear())[1] is Kind.RESET
                guest.say(stream, protocol.Done())


async def test_a_guest_without_an_end_of_output_is_found_out() -> None:
    async with connected() as (client, guest), anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(errors.ProtocolError):
                await client.wait("x1", 5)

        tasks.start_soon(ask)
        guest.say((await guest.hear())[0], protocol.ExecWaited(ended=kept(10)))
        guest.say((await guest.hear())[0], protocol.ExecOutput(segments=[], next_position=0, expired_bytes=0))


async def _silence() -> None:
    guest = Guest(Memory())
    guest.say(0, HELLO)
    client = GuestClient(await Connection.open(guest.wire))
    for call in (
        lambda: client.exec(COMMAND),
        lambda: client.start(COMMAND),
        lambda: client.read("x1", 0, wait=5),
        lambda: client.wait("x1", 5),
        lambda: client.kill("x1"),
        lambda: client.write_file("f", b"x"),
        lambda: client.write_file("f", b"x" * (4 * WINDOW_BYTES)),  # and no credit
        lambda: client.read_file("f"),
        client.list_files,
        lambda: client.delete("f", recursive=True),
        lambda: client.move("f", "g"),
        client.status,
    ):
        begun = anyio.current_time()
        with pytest.raises(errors.SessionLost):
            await call()
        assert anyio.current_time() - begun < 700
    silent = Memory()
    with pytest.raises(errors.SessionLost):
        await Connection.open(silent)
    assert silent.closed


def test_silence_is_lost() -> None:
    """Every call has its bound; trio's clock jumps to it."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(_silence, backend="trio", backend_options={"clock": clock})


@pytest.mark.parametrize(
    ("hello", "kind"),
    [
        (HELLO.model_copy(update={"protocol": 2}), errors.ProtocolMismatch),
        (HELLO.model_copy(update={"window": 0}), errors.ProtocolError),
        (protocol.Done(), errors.ProtocolError),
    ],
)
async def test_greetings_that_are_none(hello: protocol.Frame, kind: type[Exception]) -> None:
    guest = Guest(Memory())
    guest.say(0, hello)
    with pytest.raises(kind):
        await Connection.open(guest.wire)
    assert guest.wire.closed


async def test_a_flood_leaves_the_event_loop_its_turn() -> None:
    """Frames that cost nothing, as fast as a thread can send them: a deadline still holds."""
    ours, theirs = socket.socketpair()
    hello = frame(0, Kind.MESSAGE, HELLO.model_dump_json().encode())
    flood = frame(0, Kind.WINDOW, b"\0\0\0\1") * 5000

    def pour() -> None:
        with contextlib.suppress(OSError):
            theirs.sendall(hello)
            while True:
                theirs.sendall(flood)

    thread = threading.Thread(target=pour)
    thread.start()
    client = GuestClient(await Connection.open(SocketStream(ours)))
    try:
        with anyio.move_on_after(0.5) as scope:
            await client.exec(COMMAND)
        assert scope.cancelled_caught
    finally:
        await client.aclose()
        theirs.close()
        thread.join(10)

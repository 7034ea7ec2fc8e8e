"""The stream over a plain socket: eager, and still fair, and never at the cost of a byte."""

from __future__ import annotations

import socket

import anyio
import anyio.lowlevel
import pytest

from holdfast.engines.sockets import SocketStream

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_who_is_cancelled_loses_nothing(size: int) -> None:
    ours, theirs = socket.socketpair()
    sent = bytes(range(256)) * 40
    theirs.send(sent)
    theirs.close()
    stream = SocketStream(ours)
    got = b""
    while len(got) < len(sent):
        with anyio.CancelScope() as scope:
            scope.cancel()
            got += await stream.receive(size + 7)
        got += await stream.receive(size)
    assert got == sent
    with pytest.raises(anyio.EndOfStream):
        await stream.receive(size)
    await stream.aclose()


async def test_others_have_their_turn_while_there_is_always_something_to_read() -> None:
    ours, theirs = socket.socketpair()
    stream = SocketStream(ours)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(200):
            theirs.send(b"xx")
            assert await stream.receive(100) == b"xx"
        seen = turns
        for _ in range(20):
            theirs.send(b"xx")
            assert await stream.receive(2) == b"xx"  # as much as was asked for: there may be much more
        assert seen > 1 and turns >= seen + 18
        tasks.cancel_scope.cancel()
    theirs.close()
    await stream.aclose()

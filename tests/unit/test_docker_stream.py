"""The stream of a container: the daemon's pieces are put together, and its own words are not the guest's."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.abc
import pytest

from holdfast.engines.docker.stream import MultiplexedStream

pytestmark = pytest.mark.anyio


class Fed(anyio.abc.ByteStream):
    """Gives what it was made with, in pieces of any size."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces: Iterator[bytes] = iter([data[at : at + size] for at in range(0, len(data), size)])

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            raise anyio.EndOfStream from None

    async def send(self, item: bytes) -> None:
        raise AssertionError

    async def send_eof(self) -> None:
        raise AssertionError

    async def aclose(self) -> None:
        return


def piece(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


async def everything(stream: MultiplexedStream) -> bytes:
    got = b""
    try:
        while True:
            got += await stream.receive()
    except anyio.EndOfStream:
        return got


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
async def test_pieces_are_put_together(size: int) -> None:
    raw = piece(1, b"\0abc") + piece(2, b"oops") + piece(1, b"") + piece(1, b"def")
    stream = MultiplexedStream(Fed(raw[5:], size), raw[:5])
    assert await everything(stream) == b"\0abcdef"
    assert bytes(stream.stderr) == b"oops"


@pytest.mark.parametrize("size", [1, 1000])
async def test_the_daemons_own_words_are_no_frames(size: int) -> None:
    stream = MultiplexedStream(Fed(piece(1, b"OCI runtime exec failed: \0") + piece(1, b"\0more"), size))
    assert await everything(stream) == b""
    assert stream.stderr.startswith(b"OCI runtime exec failed")


async def test_a_piece_of_an_unknown_stream_breaks_it() -> None:
    with pytest.raises(anyio.BrokenResourceError):
        await MultiplexedStream(Fed(piece(7, b"x"), 100)).receive()


async def test_stderr_is_bounded() -> None:
    stream = MultiplexedStream(Fed(piece(2, b"x" * 100_000) + piece(1, b"\0"), 1000))
    assert await everything(stream) == b"\0"
    assert len(stream.stderr) == 4096

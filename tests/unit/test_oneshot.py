"""The answer to a run, from guests that tell the truth and from guests that do not."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from holdfast import errors
from holdfast.guest import protocol
from holdfast.guest.connection import frame
from holdfast.guest.oneshot import OneShot, Order, Outcome
from holdfast.guest.protocol import HEADER, Frame, Kind
from holdfast.guest.replay import ReplayStream
from tests.unit.scripted import COMMAND, ENDED, HELLO

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def count(size: int) -> protocol.StreamCount:
    return protocol.StreamCount(total_bytes=size, head_bytes=size, tail_bytes=0)


def message(kind: Kind, told: Frame) -> bytes:
    return frame(1, kind, told.model_dump_json(exclude_none=True).encode())


def found(path: str, size: int) -> bytes:
    return message(Kind.EVENT, protocol.ArtifactFound(path=path, size_bytes=size))


def ended(stdout: int = 0) -> bytes:
    end = protocol.ExecEnded(**{**dict(ENDED), "stdout": count(stdout)})
    return message(Kind.MESSAGE, protocol.RunEnded(ended=end, skipped=[], skipped_count=0, unlisted=False, proof="p"))


HELLO_FRAME = frame(0, Kind.MESSAGE, HELLO.model_dump_json().encode())


async def answered(answer: bytes, said: list[bytes] | None = None) -> Outcome:
    async def deliver(request: bytes, max_answer_bytes: int) -> bytes:
        if said is not None:
            said.append(request)
        return answer

    order = Order(
        command=COMMAND,
        files={"a": b"first", "b": b"second"},
        stdin=b"third",
        artifacts=["*"],
        max_artifact_bytes=10,
        max_artifacts=2,
    )
    oneshot = OneShot(ReplayStream(deliver), order)
    await oneshot.send()
    return await oneshot.receive()


async def test_all_that_the_guest_needs_is_said_in_advance() -> None:
    said: list[bytes] = []
    await answered(HELLO_FRAME + ended(), said)
    frames: list[tuple[int, Kind, bytes]] = []
    at = 0
    while at < len(said[0]):
        length, stream, kind = HEADER.unpack_from(said[0], at)
        frames.append((stream, Kind(kind), said[0][at + HEADER.size : at + HEADER.size + length]))
        at += HEADER.size + length
    hello = protocol.HostHello.model_validate_json(frames[0][2])
    assert (hello.on_eof, hello.window) == (protocol.OnEof.FINISH, 1 << 40)
    request = protocol.RunRequest.model_validate_json(frames[1][2])
    assert [(file.path, file.size_bytes) for file in request.files] == [("a", 5), ("b", 6)]
    assert (request.program.stdin, request.program.delivery) == ("pipe", "result")
    assert [(kind, data) for _, kind, data in frames[2:]] == [
        (Kind.DATA, b"first"),
        (Kind.DATA, b"second"),
        (Kind.DATA, b"third"),
        (Kind.END, b""),
    ]


async def test_output_and_artifacts_are_told_apart() -> None:
    data = frame(1, Kind.DATA, b"out") + found("x", 3) + frame(1, Kind.DATA, b"ab") + frame(1, Kind.DATA, b"c")
    outcome = await answered(HELLO_FRAME + data + found("empty", 0) + ended(3))
    assert outcome.result.stdout == "out"
    assert [(one.path, one.content) for one in outcome.artifacts] == [("x", b"abc"), ("empty", b"")]
    assert outcome.proof == "p"


LIES: dict[str, bytes] = {
    "more bytes than asked for": found("x", 11),
    "more in all than asked for": found("x", 6) + frame(1, Kind.DATA, b"abcdef") + found("y", 6),
    "more files than asked for": found("x", 0) + found("y", 0) + found("z", 0),
    "less than it said": found("x", 3) + frame(1, Kind.DATA, b"ab"),
    "more than it said": found("x", 1) + frame(1, Kind.DATA, b"ab"),
    "a negative size": found("x", -1),
    "another reply": message(Kind.MESSAGE, protocol.Done()),
    "another's frame": frame(9, Kind.DATA, b"x"),
    "more output than may be kept": frame(1, Kind.DATA, b"x" * 1001),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_guest_that_lies_is_not_believed(lie: str) -> None:
    with pytest.raises(errors.ProtocolError):
        await answered(HELLO_FRAME + LIES[lie] + ended())


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "half a frame": lambda whole: whole[:-5],
    "no end": lambda whole: whole[: whole.rindex(b"\x00\x00\x00\x01\x00")][:-4],
}


@pytest.mark.parametrize("cut", CUTS)
async def test_an_answer_that_breaks_off_is_lost(cut: str) -> None:
    whole = HELLO_FRAME + frame(1, Kind.DATA, b"out") + ended(3)
    with pytest.raises((errors.SessionLost, errors.ProtocolError)):
        await answered(CUTS[cut](whole))
    assert (await answered(whole)).result.ok


async def test_a_guest_of_another_protocol() -> None:
    other = protocol.GuestHello(**{**dict(HELLO), "protocol": 2})
    with pytest.raises(errors.ProtocolMismatch):
        await answered(frame(0, Kind.MESSAGE, other.model_dump_json().encode()) + ended())


async def test_a_refusal_is_the_guests_own_error() -> None:
    refused = protocol.Failure(code=protocol.ErrorCode.PATH_NOT_ALLOWED, message="no")
    with pytest.raises(errors.PathNotAllowed):
        await answered(HELLO_FRAME + message(Kind.MESSAGE, refused))


async def test_a_cancelled_delivery_is_cancelled() -> None:
    cancelled = anyio.Event()

    async def deliver(request: bytes, max_answer_bytes: int) -> bytes:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    oneshot = OneShot(ReplayStream(deliver), Order(command=COMMAND, files={}))
    await oneshot.send()
    with anyio.move_on_after(0.05):
        await oneshot.receive()
    assert cancelled.is_set()

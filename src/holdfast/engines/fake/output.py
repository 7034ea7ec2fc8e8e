"""What a scripted program wrote: the first and the last bytes of each stream, as the guest keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...guest.protocol import OutputStream, StreamCount
from ...results import OutputChunk

_SEGMENT_BYTES = 64 << 10


@dataclass(slots=True)
class _Segment:
    position: int
    data: bytearray

    @property
    def end(self) -> int:
        return self.position + len(self.data)


@dataclass(slots=True)
class _Stream:
    name: OutputStream
    head_cap: int
    tail_cap: int
    head: list[_Segment] = field(default_factory=list[_Segment])
    tail: list[_Segment] = field(default_factory=list[_Segment])
    head_bytes: int = 0
    tail_bytes: int = 0
    total: int = 0

    def append(self, position: int, data: bytes) -> None:
        self.total += len(data)
        taken = data[: self.head_cap - self.head_bytes]
        _join(self.head, position, taken)
        self.head_bytes += len(taken)
        self._append_tail(position + len(taken), data[len(taken) :])

    def _append_tail(self, position: int, data: bytes) -> None:
        if over := max(0, len(data) - self.tail_cap):
            self.tail.clear()
            self.tail_bytes = 0
        _join(self.tail, position + over, data[over:])
        self.tail_bytes += len(data) - over
        while (excess := self.tail_bytes - self.tail_cap) > 0:
            first = self.tail[0]
            drop = min(excess, len(first.data))
            del first.data[:drop]
            first.position += drop
            self.tail_bytes -= drop
            if not first.data:
                del self.tail[0]


@dataclass(frozen=True, slots=True)
class Batch:
    """The answer to a read."""

    chunks: tuple[OutputChunk, ...]
    next: int
    expired: int
    closed: bool
    """nothing will come after `next`"""


class Log:
    """Bounded output with positions: a position counts the bytes of both streams together."""

    def __init__(self, stdout_cap: int, stderr_cap: int) -> None:
        self._streams = {
            name: _Stream(name, cap - cap // 2, cap // 2)
            for name, cap in ((OutputStream.STDOUT, stdout_cap), (OutputStream.STDERR, stderr_cap))
        }
        self.position = 0
        self.closed = False

    def append(self, stream: OutputStream, data: bytes) -> None:
        if data and not self.closed:
            self._streams[stream].append(self.position, data)
            self.position += len(data)

    def count(self, stream: OutputStream) -> StreamCount:
        one = self._streams[stream]
        return StreamCount(total_bytes=one.total, head_bytes=one.head_bytes, tail_bytes=one.tail_bytes)

    def kept(self, stream: OutputStream) -> bytes:
        one = self._streams[stream]
        return b"".join(bytes(segment.data) for segment in (*one.head, *one.tail))

    def read(self, since: int, at_most: int) -> Batch:
        """What is kept from `since` on, in the order in which it was written."""
        since = min(since, self.position)
        found = sorted(
            (segment.position, stream.name, segment)
            for stream in self._streams.values()
            for segment in (*stream.head, *stream.tail)
            if segment.end > since
        )
        chunks: list[OutputChunk] = []
        next_position, expired, room = since, 0, at_most
        for position, name, segment in found:
            if room <= 0:
                return Batch(tuple(chunks), next_position, expired, False)
            start = max(position, since)
            piece = bytes(segment.data[start - position : start - position + room])
            chunks.append(OutputChunk(name.value, start, piece))
            room -= len(piece)
            expired += start - next_position
            next_position = start + len(piece)
        if room <= 0:
            return Batch(tuple(chunks), next_position, expired, False)
        return Batch(tuple(chunks), self.position, expired + self.position - next_position, self.closed)


def _join(segments: list[_Segment], position: int, data: bytes) -> None:
    """Add data to the last segment where it continues it, else as a segment of its own."""
    if not data:
        return
    if segments and segments[-1].end == position and len(segments[-1].data) + len(data) <= _SEGMENT_BYTES:
        segments[-1].data += data
    else:
        segments.append(_Segment(position, bytearray(data)))

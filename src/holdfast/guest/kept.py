"""What is kept of a program's output, and the result that it becomes."""

from __future__ import annotations

from .. import errors
from ..results import ExecResult, Output
from . import protocol


class Kept:
    """The first and the last bytes of a stream, as many as the guest keeps."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes, live: bool) -> None:
        """Live: all that was written comes, and we choose. Else the guest chose, and says later where the gap is."""
        if not live:
            if len(self._head) + len(data) > self.cap:
                raise errors.ProtocolError("the guest sent more output than it may keep")
            self._head += data
            return
        room = self.cap - self.cap // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self.cap + protocol.MAX_DATA_BYTES:
            del self._tail[: len(self._tail) - self.cap // 2]

    def output(self, count: protocol.StreamCount) -> Output:
        if self._tail:
            tail = self._tail[max(0, len(self._tail) - self.cap // 2) :]
            return Output(bytes(self._head), bytes(tail), count.total_bytes)
        head = min(max(0, count.head_bytes), len(self._head))
        return Output(bytes(self._head[:head]), bytes(self._head[head:]), count.total_bytes)


def result_of(ended: protocol.ExecEnded, stdout: Kept, stderr: Kept) -> ExecResult:
    return ExecResult(
        exit_code=ended.exit_code,
        end_cause=ended.end_cause,
        signal=ended.signal,
        duration_ms=ended.duration_ms,
        cpu_ms=ended.cpu_ms,
        peak_memory_bytes=ended.peak_memory_bytes,
        stdout_output=stdout.output(ended.stdout),
        stderr_output=stderr.output(ended.stderr),
        left_processes=tuple(errors.printable(process.name) for process in ended.left),
        left_count=ended.left_count,
        exec_id=errors.printable(ended.exec_id)[:64],
    )

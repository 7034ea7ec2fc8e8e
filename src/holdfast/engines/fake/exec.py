"""One exec of a fake sandbox: a scripted program that runs as a task, with the guest's rules for how it ends."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable

import anyio

from ...guest import protocol
from ...guest.protocol import EndCause, OutputStream, from_wire
from . import waiting
from .call import Ended, FakeCall, FakeStdin, Program
from .output import Log

_SIGKILL = 9
_IGNORED = frozenset((17, 18, 23, 28))  # CHLD, CONT, URG, WINCH: nothing happens by default
_KILL_PATIENCE = 1.5


class Exec:
    """One program, running or ended."""

    def __init__(self, number: int, request: protocol.ExecRequest, clock: waiting.Clock) -> None:
        self.id = f"x{number}"
        self.command = from_wire(request.shell or " ".join(request.argv or ()))[:200]
        self.log = Log(request.stdout_cap_bytes, request.stderr_cap_bytes)
        self.stdin = FakeStdin(request.stdin is protocol.StdinMode.PIPE)
        self.news = waiting.News()
        self.ended: protocol.ExecEnded | None = None
        self.started = clock()
        self.call: FakeCall
        self._request, self._clock = request, clock
        self._cause: EndCause | None = None
        self._signal: int | None = None
        self._exit_code: int | None = None
        self._over = False

    def start(self, program: Program, finished: Callable[[], None]) -> None:
        scope = anyio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    await self._run(program)
            finally:
                self._over = True
                self.news.tell()

        async def follow() -> None:
            try:
                await self._follow(scope)
            finally:
                self._finish()
                finished()

        waiting.spawn(run)
        waiting.spawn(follow)

    async def _run(self, program: Program) -> None:
        try:
            outcome = program(self.call)
            code = await outcome if inspect.isawaitable(outcome) else outcome
            self._exit_code = (code or 0) & 0xFF
        except Ended as end:
            self._signal = end.signal
            self._cause = self._cause or end.cause
        except SystemExit as end:
            self._exit_code = end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
        except Exception:  # noqa: BLE001 - a program that fails is a result
            self.log.append(OutputStream.STDERR, traceback.format_exc().encode())
            self._exit_code = 1

    async def _follow(self, scope: anyio.CancelScope) -> None:
        """Wait for the end: of the program, of its time, or of somebody's patience with it."""
        limit = self._request.timeout_ms
        deadline = None if limit is None else self.started + limit / 1000
        while not (self._over or self._cause or self._signal):
            left = 1.0 if deadline is None else deadline - self._clock()
            if left <= 0:
                self.stop(EndCause.TIMEOUT)
            else:
                await self.news.wait(left)
        scope.cancel()
        with anyio.move_on_after(_KILL_PATIENCE):
            while not self._over:
                await self.news.wait()

    def take(self, stream: OutputStream, data: bytes) -> None:
        """The program writes. One that was killed gets no further."""
        if self._cause or self._signal or self.ended:
            raise Ended(_SIGKILL)
        self.log.append(stream, data)
        limit = self._request.output_limit_bytes
        if limit is not None and self.log.position > limit:
            self.stop(EndCause.OUTPUT_LIMIT)
        self.news.tell()

    def stop(self, cause: EndCause) -> None:
        """Kill it. The first cause counts."""
        if self._cause is None and not self._over:
            self._cause, self._signal = cause, _SIGKILL
            self.news.tell()

    def signal(self, number: int) -> None:
        """Deliver a signal other than SIGKILL: the program's own handler, or the kernel's default."""
        if number in self.call.traps:
            handler = self.call.traps[number]
            if handler is not None:
                handler()
        elif number not in _IGNORED and not self._over:
            self._signal = self._signal or number
            self.news.tell()

    async def done(self) -> protocol.ExecEnded:
        while self.ended is None:
            await self.news.wait()
        return self.ended

    def _finish(self) -> None:
        if self._exit_code is not None or self._cause is EndCause.LOST:
            self._signal = None  # it returned before it noticed; or nobody knows
        failed = self._exit_code != 0
        cause = self._cause
        if cause is None and self._exit_code is None and self._signal is None:
            cause = EndCause.LOST  # its event loop ended
        elif cause is None:
            cause = EndCause.DISK_FULL if failed and self.call.files.full else EndCause.COMPLETED
        self.stdin.close()
        self.log.closed = True
        self.ended = protocol.ExecEnded(
            exec_id=self.id,
            end_cause=cause,
            exit_code=self._exit_code,
            signal=self._signal,
            duration_ms=(self._clock() - self.started) * 1000,
            cpu_ms=0,
            peak_memory_bytes=0,
            stdout=self.log.count(OutputStream.STDOUT),
            stderr=self.log.count(OutputStream.STDERR),
            left_count=0,
            left=[],
        )
        self.news.tell()

    def info(self) -> protocol.ExecInfo:
        return protocol.ExecInfo(
            exec_id=self.id,
            command=self.command,
            running=self.ended is None,
            started_ms_ago=round((self._clock() - self.started) * 1000),
            ended=self.ended,
        )

"""What a scripted program is given: its arguments, its streams, its files, and ways to end."""

from __future__ import annotations

import posixpath
import signal
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ... import errors, runtimes
from ...guest.protocol import EndCause
from . import waiting
from .files import FakeFiles

Program = Callable[["FakeCall"], Awaitable[int | None] | int | None]
"""A scripted program: a function, async or not, that takes its call and returns an exit code (None is 0)."""
_PIPE_BYTES = 64 << 10
INTERPRETERS = {name for runtime in runtimes.RUNTIMES.values() for name in runtime.command} | {"python", "sh"}
"""programs that take code"""


class Ended(BaseException):
    """Raised inside a program to end it as a signal would: no `except Exception` holds it up."""

    def __init__(self, number: int, cause: EndCause | None = None) -> None:
        super().__init__(number)
        self.signal = number
        self.cause = cause


class FakeStdin:
    """What is sent to a program. Ends at once where nothing was to be sent."""

    def __init__(self, open_: bool) -> None:
        self._data = bytearray()
        self._open = open_
        self._news = waiting.News()

    async def read(self, max_bytes: int | None = None) -> bytes:
        """All of it, up to its end; with `max_bytes` what is there, at most so much, and b"" at the end."""
        out = bytearray()
        while True:
            while not self._data and self._open:
                await self._news.wait()
            size = len(self._data) if max_bytes is None else min(max_bytes, len(self._data))
            out += self._data[:size]
            del self._data[:size]
            self._news.tell()
            if max_bytes is not None or not (self._open or self._data):
                return bytes(out)

    async def readline(self) -> bytes:
        """The next line with its end, or what is left without one."""
        out = bytearray()
        while not out.endswith(b"\n") and (byte := await self.read(1)):
            out += byte
        return bytes(out)

    @property
    def is_open(self) -> bool:
        return self._open

    async def feed(self, data: bytes) -> None:
        """The sender's side: wait for room, as in a pipe; what is fed to a closed one is refused."""
        view = memoryview(data)
        while view:
            while self._open and len(self._data) >= _PIPE_BYTES:
                await self._news.wait()
            if not self._open:
                raise errors.StdinClosed("the program closed its stdin")
            room = _PIPE_BYTES - len(self._data)
            self._data += view[:room]
            view = view[room:]
            self._news.tell()

    def close(self) -> None:
        self._open = False
        self._news.tell()


class FakeOutput:
    """stdout or stderr of a program."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def write(self, data: str | bytes) -> None:
        self._take(data.encode() if isinstance(data, str) else data)


class FakeCall:
    """One run of a scripted program.

    A program shares the event loop with your test. It ends when it returns, when it raises (a traceback on stderr and
    exit code 1, as Python does), and when it is killed or its time is over, at its next `await` or write.
    """

    def __init__(
        self,
        *,
        argv: tuple[str, ...],
        shell: str | None,
        env: dict[str, str],
        cwd: str,
        files: FakeFiles,
        stdin: FakeStdin,
        stdout: FakeOutput,
        stderr: FakeOutput,
        clock: waiting.Clock,
    ) -> None:
        self.argv = argv
        self.shell = shell
        """the line, where it was called as one; `argv` holds its words"""
        self.env = env
        self.cwd = cwd
        """absolute"""
        self.files = files
        """the workspace; its relative paths start there and not at `cwd`"""
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.traps: dict[int, Callable[[], None] | None] = {}
        self._clock = clock

    @property
    def code(self) -> str | None:
        """The code that an interpreter was called with, as a script or after `-c` (`-e`); None if there is none."""
        if len(self.argv) < 2 or posixpath.basename(self.argv[0]) not in INTERPRETERS:
            return None
        if self.argv[1] in ("-c", "-e"):
            return self.argv[2] if len(self.argv) > 2 else None
        try:
            return self.files.read_text(posixpath.join(self.cwd, self.argv[1]))
        except errors.FileError:
            return None

    async def sleep(self, seconds: float) -> None:
        """Wait by the engine's clock: with a `FakeClock`, until the test has moved it. `sleep(0)` lets others run."""
        await waiting.sleep(self._clock, seconds)

    def trap(self, number: int, handler: Callable[[], None] | None = None) -> None:
        """Do not end by this signal; call `handler`, if there is one. SIGKILL cannot be trapped."""
        if number != signal.SIGKILL:
            self.traps[number] = handler

    def die(self, number: int, cause: EndCause = EndCause.COMPLETED) -> NoReturn:
        """End by a signal; with `cause`, as the kernel would have it: `call.die(9, EndCause.OOM)`."""
        raise Ended(number, cause)

"""Programs that go on while an agent of the OpenAI Agents SDK does something else: `exec_command`, `write_stdin`."""

from __future__ import annotations

import codecs
import contextlib
import json
import signal
from dataclasses import dataclass, field

import anyio
from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_types import PtyExecUpdate, truncate_text_by_tokens

from ... import errors
from ...code.process import Process
from ...code.session import Session
from ...config import settings
from ...results import EndCause, ExecResult, OutputRead
from ..tool import failure

FAILED, _TIMED_OUT, _BY_SIGNAL = 125, 124, 128
_TOLD_BYTES = 1 << 20
"""of one answer; the rest comes with the next"""
_INTERRUPT, _END_OF_INPUT = "\x03", "\x04"
_FIRST = 1000


@dataclass(slots=True)
class _Program:
    process: Process
    stdin: bool
    since: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    def __post_init__(self) -> None:
        self.decoder.errors = "replace"

    def text(self, read: OutputRead) -> str:
        """What is new; where some of it was overwritten, because nobody read it in time, a note."""
        text = ""
        for chunk in read.chunks:
            if chunk.position > self.since:
                text += f"\n[{chunk.position - self.since} bytes of output are missing here]\n"
            text += self.decoder.decode(chunk.data)
            self.since = chunk.position + len(chunk.data)
        self.since = read.next
        return text + self.decoder.decode(b"", final=read.ended)


class Programs:
    """The programs of one session that an agent has started, by the numbers that the SDK gives them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._running: dict[int, _Program] = {}
        self._next = _FIRST

    async def start(
        self, words: list[str], user: str | None, stdin: bool, seconds: float, tokens: int | None
    ) -> PtyExecUpdate:
        """Start a program, and wait so long for its end. Who is cancelled meanwhile does not leave it behind."""
        try:
            process = await self._session.start(
                words,
                user=user,
                stdin=stdin,
                timeout=settings().max_timeout,
                max_stdout_bytes=_TOLD_BYTES,
                max_stderr_bytes=_TOLD_BYTES,
            )
        except errors.SandboxError as error:
            return _refused(error)
        number, self._next = self._next, self._next + 1
        self._running[number] = _Program(process, stdin)
        try:
            return await self._look(number, seconds, tokens)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end(number)
            raise

    async def write(self, number: int, chars: str, seconds: float, tokens: int | None) -> PtyExecUpdate:
        """Give a program something to read, and wait so long for its end."""
        program = self._running.get(number)
        if program is None:
            raise PtySessionNotFoundError(session_id=number)
        if chars and not program.stdin:
            raise RuntimeError("stdin is not available for this process")  # the SDK knows it by these words
        try:
            *before, last = chars.split(_INTERRUPT)
            for text in before:
                await _say(program.process, text)
                await program.process.kill(signal.SIGINT)
            await _say(program.process, last)
        except errors.ExecError:
            pass  # it has ended, or reads no more; what it wrote tells why
        except errors.SandboxError as error:
            return _refused(error)
        return await self._look(number, seconds, tokens)

    async def end_all(self) -> None:
        for number in [*self._running]:
            await self._end(number)

    async def _end(self, number: int) -> None:
        program = self._running.pop(number, None)
        if program is not None:
            with contextlib.suppress(errors.SandboxError):  # it has ended before, or its whole session has
                await program.process.kill()

    async def _look(self, number: int, seconds: float, tokens: int | None) -> PtyExecUpdate:
        program, text, ended = self._running[number], "", None
        until = anyio.current_time() + seconds
        try:
            while ended is None and len(text) < _TOLD_BYTES:
                left = until - anyio.current_time()
                read = await program.process.read(program.since, wait=max(0, left))
                text += program.text(read)
                if read.ended:
                    ended = await program.process.wait(60)
                elif left <= 0:
                    break
        except errors.SandboxError as error:
            del self._running[number]
            return _refused(error)
        code = None
        if ended is not None:
            del self._running[number]
            code, note = told(ended)
            text += note
        shown, count = truncate_text_by_tokens(text, tokens)
        return PtyExecUpdate(number if ended is None else None, shown.encode(), code, count)


async def _say(process: Process, text: str) -> None:
    if text:
        await process.write_stdin(text.removesuffix(_END_OF_INPUT), close=text.endswith(_END_OF_INPUT))


def _refused(error: errors.SandboxError) -> PtyExecUpdate:
    return PtyExecUpdate(None, json.dumps(failure(error)).encode(), FAILED, None)


def told(ended: ExecResult) -> tuple[int, str]:
    """The exit code as `holdfast run` has it, and what there is to say about it."""
    if ended.end_cause is EndCause.TIMEOUT:
        return _TIMED_OUT, f"\n[killed after {ended.duration_ms / 1000:.0f} s: its time was over]\n"
    if ended.exit_code is not None:
        return ended.exit_code, ""
    note = f"\n[ended by {ended.end_cause.value}]\n"
    return (FAILED if ended.signal is None else _BY_SIGNAL + ended.signal), note

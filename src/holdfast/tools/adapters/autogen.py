"""A code executor for AutoGen: `CodeExecutorAgent("coder", code_executor=Executor())`, over one session of its own.

A block is written to a file of the session's workspace and run; files stay from block to block, processes do not. What
a program did is a result; that the sandbox is gone, or cannot be made, is an error of ours.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from contextlib import AsyncExitStack
from typing import Self

import anyio
import anyio.lowlevel
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from ... import errors
from ...code.session import Session
from ...results import EndCause
from .. import shown
from .options import SessionOptions

_FILENAME = re.compile(r"\s*(?:#|//) filename: (\S+)")
_LANGUAGES = {
    "python": ("python3", "py"),
    "py": ("python3", "py"),
    "bash": ("bash", "sh"),
    "shell": ("sh", "sh"),
    "sh": ("sh", "sh"),
    "javascript": ("node", "js"),
    "js": ("node", "js"),
}
"""language -> the program that runs it, and how its files end"""
_TIMED_OUT = 124  # as with AutoGen's own executors, and with timeout(1)


class ExecutorConfig(SessionOptions):
    """The session, and what is done in it."""

    timeout: float = 60
    """seconds for each block; the operator's settings bound it"""
    work_dir: str | None = None
    """a folder of this machine: what is in it is in the workspace at the start, and the other way round at the end"""


class Executor(CodeExecutor, Component[ExecutorConfig]):
    """Runs the blocks of code that models write, in a sandbox."""

    component_config_schema = ExecutorConfig
    component_provider_override = f"{__name__}.Executor"

    def __init__(self, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig()
        self._open: tuple[Session, AsyncExitStack] | None = None

    @property
    def session(self) -> Session:
        """To look at, and to move files in and out, while it is started."""
        if self._open is None:
            raise ValueError("the executor is not started; call start(), or use it with `async with`")
        return self._open[0]

    async def start(self) -> None:
        """Make the sandbox. Starting again is fine."""
        if self._open is not None:
            return
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._config.opened())
            if self._config.work_dir is not None and await anyio.Path(self._config.work_dir).exists():
                await session.upload(self._config.work_dir, ".")
            self._open = (session, stack.pop_all())

    async def stop(self) -> None:
        """End the sandbox with all that runs in it. What its workspace holds goes to `work_dir`, if there is one.
        Stopping again is fine."""
        if self._open is None:
            return
        session, stack = self._open
        self._open = None
        async with stack:
            if self._config.work_dir is not None:
                await session.download(".", self._config.work_dir)

    async def restart(self) -> None:
        """A fresh sandbox: without `work_dir` its workspace is empty."""
        await self.stop()
        await self.start()

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run them one after the other, up to the first that fails; what they wrote, together, and its exit code.

        Raises:
            ValueError: the executor is not started.
            CancelledError: the token was cancelled; what ran was killed.
            SandboxError: the sandbox could not run it.
        """
        session, done = self.session, CodeResult(0, "")
        with anyio.CancelScope() as scope:
            cancellation_token.add_callback(scope.cancel)
            for block in code_blocks:
                await anyio.lowlevel.checkpoint_if_cancelled()
                one = await self._execute(session, block)
                done = CodeResult(one.exit_code, done.output + one.output)
                if one.exit_code != 0:
                    break
        if scope.cancel_called:
            raise anyio.get_cancelled_exc_class()
        return done

    async def _execute(self, session: Session, block: CodeBlock) -> CodeResult:
        known = _LANGUAGES.get(block.language.lower())
        if known is None:
            return CodeResult(1, f"unknown language {block.language}; there are {', '.join(_LANGUAGES)}\n")
        program, suffix = known
        named = _FILENAME.match(block.code)
        name = named[1] if named else f"tmp_code_{hashlib.sha256(block.code.encode()).hexdigest()[:32]}.{suffix}"
        path = posixpath.join(session.effective.workspace, name)
        try:
            await session.write(path, block.code)
            ended = await session.exec([program, path], timeout=self._config.timeout)
        except (errors.FileError, errors.ExecError) as error:  # such as a language that the image does not have
            return CodeResult(127 if isinstance(error, errors.CommandNotFound) else 126, f"{error}\n")
        if ended.end_cause is EndCause.LOST:
            raise errors.SessionLost("the sandbox went away while it ran the code; nobody knows how that ended")
        told = shown.result(ended)
        code = 128 + (ended.signal or 9) if ended.exit_code is None else ended.exit_code
        if ended.end_cause is not EndCause.COMPLETED:
            told["stderr"] += f"\nThe sandbox ended it: {ended.end_cause} after {ended.duration_ms / 1000:.1f} s\n"
        return CodeResult(_TIMED_OUT if ended.end_cause is EndCause.TIMEOUT else code, told["stdout"] + told["stderr"])

    def _to_config(self) -> ExecutorConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: ExecutorConfig) -> Self:
        return cls(config)

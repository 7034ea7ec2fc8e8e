"""A sandbox provider for Inspect: `Task(..., sandbox="holdfast")`, one session for each sample.

Inspect finds this module by its entry point. Options are a `HoldfastConfig`, or a TOML file with the same keys:
`sandbox=("holdfast", "sandbox.toml")`. The sessions belong to the workflow `inspect_ai`, so that `holdfast ps` shows
them and `inspect sandbox cleanup holdfast` ends what is left.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import secrets
import shlex
import stat
import tomllib
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal, overload

import anyio
import click
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from ... import errors
from ...code.keys import Namespace
from ...code.manager import end_workflow, list_sessions, open_session
from ...code.session import Session
from ...code.sweep import each
from ...config import settings
from ...engines import engine
from . import anywhere
from . import inspect_ai_errors as answers
from .options import SessionOptions

WORKFLOW = "inspect_ai"
_MOST_KEPT_BYTES = 64 << 20
"""of one stream; the guest keeps it in memory"""
_SERVER = ["inspect-sandbox-tools", "start-server"]
_MOST_SAID_BYTES = 64 << 10
_AND_SAY, _SAID = '"$@"; echo "ended with $?"', re.compile(rb"ended with (\d+)\n\Z")


class HoldfastConfig(SessionOptions):
    """The sandbox of each sample."""

    user: str | None = None
    """whom programs run as where nobody is named; the workspace is theirs. None: the profile's own user"""


@sandboxenv(name="holdfast")
class HoldfastSandbox(SandboxEnvironment):
    """One session."""

    def __init__(self, session: Session, stack: AsyncExitStack, user: str | None) -> None:
        super().__init__()
        self.session = session
        self._stack = stack
        self._user = user

    # --- made and removed

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> HoldfastConfig:
        return HoldfastConfig.model_validate(config)

    @classmethod
    def default_concurrency(cls) -> int | None:
        return 2 * (os.cpu_count() or 1)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        options = await _options(config)
        stack = AsyncExitStack()
        session = await stack.enter_async_context(options.opened(WORKFLOW, secrets.token_hex(8)))
        made = cls(session, stack, options.user)
        try:
            await made._hand_over()
        except BaseException:
            await made._end()
            raise
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        await each(environment.as_type(cls)._end for environment in environments.values())

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """Each sample has ended its session, an interrupted one too, unless none was to be ended."""
        if cleanup:
            return
        for key, _ in await list_sessions():
            if (key.namespace, key.id) == (Namespace.WORKFLOW, WORKFLOW):
                click.echo(f"not ended: {key}; next: inspect sandbox cleanup holdfast {key.name}")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002
        if id is None:
            await end_workflow(WORKFLOW, keep_for=0)
            return
        async with open_session(workflow=WORKFLOW, session=id, create=False) as session:
            await session.close()

    async def _hand_over(self) -> None:
        """Give the workspace to the user whose it is to be."""
        if self._user is None:
            return
        done = await self.session.exec(["chown", "--", self._user, self.session.effective.workspace])
        if not done.ok:
            why = errors.printable(done.stderr.strip())
            raise SandboxUserUnsupportedError(f"the sandbox cannot run programs as {self._user}: {why}")

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self.session.close()
            finally:
                await self._stack.aclose()

    # --- programs

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """As Inspect's contract has it. What timed out is not tried again: the guest keeps the time, so that it was no
        hiccup of a connection; and what a command did before is done."""
        if [posixpath.basename(word) for word in cmd] == _SERVER:
            return await self._start_server(cmd, user)
        kept = min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, _MOST_KEPT_BYTES)
        home = {"HOME": self.session.effective.workspace} if self._user and user is None else {}
        with answers.unavailable():
            try:
                ended = await self.session.exec(
                    cmd,
                    timeout=timeout or settings().max_timeout,
                    cwd=cwd,
                    env={**home, **(env or {})},
                    stdin=input,
                    user=user or self._user,
                    max_stdout_bytes=kept,
                    max_stderr_bytes=kept,
                )
            except errors.NotExecutable as error:
                raise PermissionError(errno.EACCES, str(error), cmd[0]) from error
            except (errors.TooManyExecs, errors.UserNotAvailable):
                raise
            except (errors.ExecError, errors.FileError, errors.InvalidRequest) as error:
                return answers.not_started(error)
        return answers.result(ended)

    async def _start_server(self, cmd: list[str], user: str | None) -> ExecResult[str]:
        """Inspect's own tools leave a server behind, to which their later commands talk. An exec ends with all that it
        has started; so this one goes on, until the session ends or the longest time that the operator allows."""
        with answers.unavailable():
            process = await self.session.start(
                ["/bin/sh", "-c", _AND_SAY, "sh", *cmd],
                user=user or self._user,
                timeout=settings().max_timeout,
                keep_background=True,
            )
            try:
                said, since = b"", 0
                while not (found := _SAID.search(said)):
                    read = await process.read(since, wait=10)
                    said, since = (said + read.stdout + read.stderr)[-_MOST_SAID_BYTES:], read.next
                    if read.ended:
                        return answers.result(await process.wait())
            except BaseException:
                with anyio.move_on_after(10, shield=True):
                    await process.kill()
                raise
        code = int(found[1])
        return ExecResult(code == 0, code, "", said[: found.start()].decode(errors="replace"))

    # --- files: where a user is configured, by programs with the user's rights; else in the workspace by the guest, so
    # that no program that an agent may have replaced has a hand in what a scorer reads

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path, data = self._path(file), contents.encode() if isinstance(contents, str) else contents
        with answers.unavailable(), answers.of_files(file):
            await self._require(path, stat.S_IWUSR)
            await anywhere.write(self.session, path, data, user=self._user)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path, limit = self._path(file), SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with answers.unavailable(), answers.of_files(file):
            await self._require(path, stat.S_IRUSR)
            try:
                data = await anywhere.read(self.session, path, max_bytes=limit, user=self._user)
            except errors.FileTooLarge as error:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return data.decode() if text else data

    def _path(self, file: str) -> str:
        if "\0" in file:
            raise ValueError("embedded null byte")  # as Python says it: Inspect tells the model
        return posixpath.join(self.session.effective.workspace, file)

    async def _require(self, path: str, permission: int) -> None:
        """The guest may be root, and replaces what cannot be written: what its owner may not do, is not done."""
        with suppress(errors.PathNotAllowed, errors.SandboxFileNotFound):
            if self._user is None and not (await self.session.stat(path)).mode & permission:
                raise errors.PermissionDenied("its mode does not let its owner do that")

    # --- looked into

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in the container, for people: it is none of the session's programs, and nothing ends it but them."""
        record = self.session.record
        if record.engine != "docker":
            raise NotImplementedError(f"sandboxes of the engine {record.engine} have no shell for people")
        if await engine(record.engine).find(record.name) is None:
            raise ConnectionError(f"the sandbox {record.name} is gone")
        host, somebody = settings().docker_host, user or self._user
        words = ["docker", *(["--host", host] if host else []), "exec", "-it", "-w", record.effective.workspace]
        words += [*(["-u", somebody] if somebody else []), record.name, "sh"]
        return SandboxConnection(type="holdfast", command=shlex.join(words), container=record.name)


async def _options(config: SandboxEnvironmentConfigType | None) -> HoldfastConfig:
    if isinstance(config, str):
        return HoldfastConfig.model_validate(tomllib.loads(await anyio.Path(config).read_text()))
    return HoldfastConfig() if config is None else HoldfastConfig.model_validate(config.model_dump())

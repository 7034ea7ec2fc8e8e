"""All execs of a fake sandbox: what may be started, and what is kept of it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from ... import errors
from ...guest import protocol
from ...guest.protocol import EndCause, OutputStream, from_wire
from . import waiting
from .call import FakeCall, FakeOutput
from .exec import Exec
from .files import FakeFiles
from .programs import Programs

_MAX_RUNNING = 256
_MAX_ENDED = 64
_MAX_ARGUMENT_BYTES = 131072 - 1
_MAX_COMMAND_BYTES = 2 << 20
_MAX_CAP_BYTES = 64 << 20
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Execs:
    """All execs of one sandbox."""

    def __init__(
        self,
        files: FakeFiles,
        programs: Programs,
        env: dict[str, str],
        clock: waiting.Clock,
        touch: Callable[[], None],
    ) -> None:
        self._files, self._programs, self._env = files, programs, env
        self._clock, self._touch = clock, touch
        self._counter = 0
        self._execs: dict[str, Exec] = {}

    @property
    def running(self) -> int:
        return sum(one.ended is None for one in self._execs.values())

    def start(self, request: protocol.ExecRequest) -> Exec:
        """Start a program.

        Raises:
            SandboxError: the one that a real guest has for this mistake.
        """
        for cap in (request.stdout_cap_bytes, request.stderr_cap_bytes):
            if not 0 <= cap <= _MAX_CAP_BYTES:
                raise errors.InvalidRequest(f"output caps must lie between 0 and {_MAX_CAP_BYTES} bytes")
        argv = self._arguments(request)
        env = self._environment(request)
        cwd = self._folder(request.cwd)
        line = None if request.shell is None else from_wire(request.shell)
        program = self._programs.look_up(argv, line, self._files, cwd)
        _check_user(request.user)
        if self.running >= _MAX_RUNNING:
            raise errors.TooManyExecs(f"{self.running} execs are running in this sandbox; wait for one or kill it")
        self._counter += 1
        one = Exec(self._counter, request, self._clock)
        one.call = FakeCall(
            argv=argv,
            shell=line,
            env=env,
            cwd=cwd,
            files=self._files,
            stdin=one.stdin,
            stdout=FakeOutput(lambda data: one.take(OutputStream.STDOUT, data)),
            stderr=FakeOutput(lambda data: one.take(OutputStream.STDERR, data)),
            clock=self._clock,
        )
        self._execs[one.id] = one
        self._programs.calls.append(one.call)
        one.start(program, self._ended)
        return one

    def _ended(self) -> None:
        over = [one.id for one in self._execs.values() if one.ended is not None][:-_MAX_ENDED]
        for exec_id in over:
            del self._execs[exec_id]
        self._touch()

    def find(self, exec_id: str) -> Exec:
        if exec_id not in self._execs:
            raise errors.ExecNotFound(f"there is no exec {exec_id!r} here; the last {_MAX_ENDED} that ended are kept")
        return self._execs[exec_id]

    def forget(self, one: Exec) -> None:
        self._execs.pop(one.id, None)

    def list(self) -> list[protocol.ExecInfo]:
        return [one.info() for one in self._execs.values()]

    def stop_all(self, cause: EndCause = EndCause.LOST) -> None:
        """End every one; by default because the sandbox ends under them."""
        for one in self._execs.values():
            one.stop(cause)

    def _arguments(self, request: protocol.ExecRequest) -> tuple[str, ...]:
        if request.shell is not None and request.argv is not None:
            raise errors.InvalidRequest("give either a list of arguments or a shell line, not both")
        given = [request.shell] if request.shell is not None else request.argv
        if not given or not given[0]:
            raise errors.InvalidRequest("the command is empty")
        words = tuple(map(from_wire, given))
        for index, word in enumerate(words):
            _check_length(f"argument {index}", word)
        if sum(map(len, words)) > _MAX_COMMAND_BYTES:
            raise errors.ArgumentTooLong("the arguments together are too long: write them to a file")
        return self._programs.split(words[0]) if request.shell is not None else words

    def _environment(self, request: protocol.ExecRequest) -> dict[str, str]:
        env = dict(self._env)
        for name, value in request.env.items():
            if not _VARIABLE.fullmatch(name):
                raise errors.InvalidRequest(f"{name!r} is not the name of an environment variable")
            env[name] = from_wire(value)
            _check_length(f"the variable {name}", name + env[name])
        return env

    def _folder(self, asked: str | None) -> str:
        workspace = self._files.workspace
        if asked is None:
            return workspace
        path = posixpath.normpath(posixpath.join(workspace, from_wire(asked)))
        if not asked:
            raise errors.InvalidRequest("the working directory is empty")
        if path.split("/")[1] in ("proc", "sys", "dev"):
            raise errors.PathNotAllowed(f"{asked} cannot be a working directory; use one beneath {workspace}")
        try:
            found = self._files.stat(path)
        except errors.NameTooLong:
            raise errors.NameTooLong("the working directory's name is too long") from None
        except errors.SandboxNotADirectory:
            raise errors.CwdNotADirectory(f"{asked} is not a directory") from None
        except errors.FileError:
            raise errors.CwdNotFound(f"the working directory {asked} does not exist; make it first") from None
        if found.kind is not protocol.FileKind.DIRECTORY:
            raise errors.CwdNotADirectory(f"{asked} is not a directory")
        return path


def _check_length(what: str, text: str) -> None:
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > _MAX_ARGUMENT_BYTES:
        raise errors.ArgumentTooLong(
            f"{what} is too long ({size} bytes; Linux takes {_MAX_ARGUMENT_BYTES}): "
            "write it to a file or send it as stdin"
        )


def _check_user(asked: str | None) -> None:
    name = None if asked is None else asked.partition(":")[0]
    if name is None or name == "sandbox":
        return
    if name.isdecimal() or name == "root":
        raise errors.UserNotAvailable(f"this sandbox cannot start a program as {asked!r}")
    raise errors.UserUnknown(f"there is no user {asked!r} in this sandbox")

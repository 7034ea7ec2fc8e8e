"""The programs that a fake engine knows: by name, by line, and for code."""

from __future__ import annotations

import posixpath
import shlex
from collections import deque
from collections.abc import Awaitable, Callable

from ... import errors
from .call import INTERPRETERS, FakeCall, Program
from .files import FakeFiles

_OPERATORS = frozenset("|&;<>()")
_EXPANSIONS = frozenset("$`\n")
_MAX_CALLS = 1000


class Programs:
    """What a fake sandbox can run. Not a shell: a line is known as a whole, or is the words of one command."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}
        self._on_code: Program | None = None
        self.calls: deque[FakeCall] = deque(maxlen=_MAX_CALLS)
        """the calls that were made, oldest first: what a test looks at"""

    def program(self, name: str) -> Callable[[Program], Program]:
        """Decorator: register a program under a name (`pytest`), a path (`./build.sh`) or a whole shell line."""

        def register(program: Program) -> Program:
            self._programs[name] = program
            return program

        return register

    def reply(self, name: str, stdout: str | bytes = b"", stderr: str | bytes = b"", exit_code: int = 0) -> None:
        """Register a program, or a whole shell line, that always answers the same."""

        def answer(call: FakeCall) -> int:
            call.stdout.write(stdout)
            call.stderr.write(stderr)
            return exit_code

        self._programs[name] = answer

    def on_code(self, program: Program) -> Program:
        """Register what answers for code: `run(code)`, `python3 main.py`, `node -e …`; `call.code` is the code."""
        self._on_code = program
        return program

    def split(self, line: str) -> tuple[str, ...]:
        """The arguments of a shell line.

        Raises:
            CommandNotFound: the line needs a shell, and is not registered as a whole.
        """
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.commenters = ""
            words = tuple(lexer)
            plain = not any(set(word) <= _OPERATORS for word in words if word)
            words = tuple(shlex.split(line))
        except ValueError:  # a quote is missing
            plain, words = False, (line,)
        if line in self._programs or (plain and words and not _EXPANSIONS & set(line)):
            return words
        raise errors.CommandNotFound(f"the fake engine has no shell; register this line: {_how(line)}")

    def look_up(self, argv: tuple[str, ...], line: str | None, files: FakeFiles, cwd: str) -> Program:
        """The program for a command.

        Raises:
            CommandNotFound: it is not registered; says how to.
            NotExecutable: it is a file of the workspace without the permission.
        """
        if line is not None and line in self._programs:
            return self._programs[line]
        name = argv[0]
        if name in self._programs:
            return self._programs[name]
        if "/" in name:
            path = posixpath.normpath(posixpath.join(cwd, name))
            if path.startswith(f"{files.workspace}/"):
                return self._file(path, files)
            name = posixpath.basename(name)
        if name in self._programs:
            return self._programs[name]
        if name in INTERPRETERS:
            return self._for_code(name)
        raise errors.CommandNotFound(f"no program {name!r} in this fake engine; register it: {_how(name)}")

    def _file(self, path: str, files: FakeFiles) -> Program:
        if path in self._programs:
            return self._programs[path]
        if not files.exists(path):
            raise errors.CommandNotFound(f"{path} does not exist in this sandbox")
        if not files.stat(path).mode & 0o100:
            raise errors.NotExecutable(f"{path} is not executable: `chmod +x` it or name its interpreter")
        raise errors.CommandNotFound(f"the fake engine does not execute files; register it: {_how(path)}")

    def _for_code(self, name: str) -> Program:
        handler = self._on_code
        if handler is None:
            raise errors.CommandNotFound(
                f"the fake engine does not run code; register what answers for {name}: @fake.on_code or {_how(name)}"
            )

        def run(call: FakeCall) -> Awaitable[int | None] | int | None:
            if call.code is None:
                call.stderr.write(f"{name}: can't open the script that it was called with\n")
                return 2
            return handler(call)

        return run


def _how(name: str) -> str:
    return f"@fake.program({name!r})"

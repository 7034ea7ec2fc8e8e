"""A program to run, as callers ask for it and as the protocol has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import errors
from . import protocol
from .protocol import to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run, and the bounds of running it."""

    argv: tuple[str, ...] | None = None
    shell: str | None = None
    cwd: str | None = None
    env: dict[str, str]
    user: str | None = None
    timeout: float | None
    stdout_cap_bytes: int
    stderr_cap_bytes: int
    output_limit_bytes: int | None = None
    background: protocol.Background = protocol.Background.KILL

    def __post_init__(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise errors.InvalidRequest("a timeout is a positive number of seconds")

    def request(self, stdin: bool, delivery: protocol.Delivery) -> protocol.ExecRequest:
        """As the protocol has it.

        Raises:
            InvalidRequest: NUL in a text, or an empty command.
        """
        if not self.shell and not self.argv:
            raise errors.InvalidRequest("the command is empty")
        try:
            return protocol.ExecRequest(
                argv=[to_wire(argument) for argument in self.argv] if self.argv else None,
                shell=to_wire(self.shell) if self.shell else None,
                cwd=to_wire(self.cwd) if self.cwd is not None else None,
                env={to_wire(name): to_wire(value) for name, value in self.env.items()},
                stdin=protocol.StdinMode.PIPE if stdin else protocol.StdinMode.NONE,
                user=to_wire(self.user) if self.user is not None else None,
                timeout_ms=max(1, round(self.timeout * 1000)) if self.timeout is not None else None,
                stdout_cap_bytes=self.stdout_cap_bytes,
                stderr_cap_bytes=self.stderr_cap_bytes,
                output_limit_bytes=self.output_limit_bytes,
                background=self.background,
                delivery=delivery,
            )
        except ValueError as error:
            raise errors.InvalidRequest(f"the command, its folder or its environment {error}") from error


def encoded(text: str) -> bytes:
    """Text as a file or a stdin holds it; bytes that Python could not decode come back as they were.

    Raises:
        InvalidRequest: it holds half of a surrogate pair, which is no character.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise errors.InvalidRequest(
            f"the text cannot be encoded: {error.reason} at {error.start}; give bytes"
        ) from error

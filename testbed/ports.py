"""Ports on loopback: the usual one, the one from before, or a free one; never somebody else's."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from testbed.core import TestbedError
from testbed.machine import Machine

LOOPBACK = "127.0.0.1"

DEFAULTS = {"registry": 27500, "dagger": 27501, "nats": 27502}
"""Below the range from which the kernel takes ports for outgoing connections."""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class Ports:
    """Remembers which port each part got, beside the daemons' records, so that it stays the same."""

    def __init__(self, machine: Machine, run: Path) -> None:
        self._machine = machine
        self._run = run

    def used(self, part: str) -> int | None:
        """The port that the part got last time."""
        try:
            return int(json.loads(self._record(part).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def asked(self, part: str) -> int | None:
        """The port that the environment asks for.

        Raises:
            TestbedError: it is no port.
        """
        variable = _variable(part)
        text = self._machine.environ.get(variable)
        if not text:
            return None
        port = int(text) if text.isdecimal() else 0
        if not 0 < port < 65536:
            raise TestbedError(f"{variable}={text} is no port", "give a number from 1 to 65535, or unset it")
        return port

    def check(self, part: str, port: int) -> None:
        """Refuses a port that is in use, but not the one that the environment asks for."""
        if self.asked(part) not in (None, port):
            raise TestbedError(f"{part} is on another port than {_variable(part)}", f"call testbed/up {part}")

    def choose(self, part: str) -> int:
        """A port nobody listens on now. One asked for in the environment is taken or refused, never replaced.

        Raises:
            TestbedError: the port asked for is taken, or is no port.
        """
        asked = self.asked(part)
        if asked is not None and not is_free(asked):
            raise TestbedError(
                f"Port {asked} for {part} is taken by another program",
                f"stop that program, or unset {_variable(part)}",
            )
        candidates = (asked, self.used(part), DEFAULTS[part])
        port = next((one for one in candidates if one and is_free(one)), None) or _any_free()
        self._run.mkdir(parents=True, exist_ok=True)
        self._record(part).write_text(json.dumps(port))
        return port

    def _record(self, part: str) -> Path:
        return self._run / f"{part}.port"


def _variable(part: str) -> str:
    return f"HOLDFAST_TESTBED_{part.upper()}_PORT"


def _any_free() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

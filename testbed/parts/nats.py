"""NATS with JetStream, from Debian, on loopback, its store in the cache."""

from __future__ import annotations

import json
import socket
from typing import Any

from testbed.core import TestbedError
from testbed.daemon import Daemon
from testbed.parts.base import Part
from testbed.parts.packages import apt_install
from testbed.ports import LOOPBACK
from testbed.settings import NatsSettings


class Nats(Part[NatsSettings]):
    name = "nats"

    def look(self) -> NatsSettings:
        port = self.bed.ports.used(self.name)
        if self._daemon().pid is None or port is None:
            raise TestbedError("NATS is not running", "call testbed/up nats")
        self.bed.ports.check(self.name, port)
        info = _greeting(port)
        if info is None or not info.get("jetstream"):
            raise TestbedError(f"NATS does not answer on port {port}", "call testbed/up nats")
        return {"url": f"nats://{LOOPBACK}:{port}", "version": str(info["version"])}

    def bring_up(self) -> None:
        apt_install(self.bed, self.name, ["nats-server"])
        program = self.machine.which("nats-server") or "nats-server"
        with self.report.step(self.name, "server started"):
            self._daemon().stop(grace=5)  # one of ours that lives and does not answer
            port = self.bed.ports.choose(self.name)
            store = self.cache.run / "nats"
            self._daemon().start(
                [program, "-a", LOOPBACK, "-p", str(port), "-js", "-sd", str(store)],
                answers=lambda: _greeting(port) is not None,
                timeout=30,
                environ=self.machine.environ,
            )

    def stop(self) -> None:
        if self._daemon().pid is not None:
            with self.report.step(self.name, "server stopped"):
                self._daemon().stop(grace=10)

    def _daemon(self) -> Daemon:
        return Daemon("nats-server", self.cache.run)

    def address(self, section: NatsSettings) -> str:
        return section["url"]


def _greeting(port: int) -> dict[str, Any] | None:
    """What a NATS server says first to whoever connects, or None."""
    try:
        with (
            socket.create_connection((LOOPBACK, port), timeout=3) as connection,
            connection.makefile("rb") as lines,
        ):
            kind, _, body = lines.readline(65536).partition(b" ")
            return dict(json.loads(body)) if kind == b"INFO" else None
    except (OSError, ValueError):
        return None

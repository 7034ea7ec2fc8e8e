"""One fake sandbox: its files, its programs, and the clock that ends it."""

from __future__ import annotations

import platform
import time

from ...abc import Effective, SandboxRecord, SandboxSpec
from ...guest import protocol
from . import waiting
from .execs import Execs
from .files import FakeFiles
from .programs import Programs

_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/sandbox", "USER": "sandbox", "LANG": "C.UTF-8"}
_UNLIMITED = 1 << 40
_NOT_HELD = ("memory_mb", "processes", "cpu_millicores", "open_files")


class FakeSandbox:
    """The state of a session or a run, and what its guest knows."""

    def __init__(self, spec: SandboxSpec, number: int, programs: Programs, clock: waiting.Clock) -> None:
        limits = spec.limits
        self.spec = spec
        self.files = FakeFiles(
            spec.workspace.rstrip("/"),
            None if limits.workspace_mb is None else limits.workspace_mb << 20,
            limits.max_files,
            limits.max_file_size_bytes,
        )
        self.execs = Execs(self.files, programs, _ENV | spec.env, clock, self.touch)
        self.news = waiting.News()
        self.connections = 0
        self.ended = False
        self.record = SandboxRecord(
            name=spec.name,
            engine="fake",
            address=f"fake:{spec.name}:{number}",
            created_at=time.time(),
            alive=True,
            effective=_effective(spec),
            spec_digest=spec.digest,
            labels=dict(spec.labels),
            expires_at=None if spec.max_lifetime is None else time.time() + spec.max_lifetime,
            keep_for=spec.keep_for,
        )
        self._clock = clock
        self._created = self._used = clock()
        self._idle_timeout, self._max_lifetime = spec.idle_timeout, spec.max_lifetime

    def touch(self) -> None:
        """Somebody uses it."""
        self._used = self._clock()

    def end(self) -> None:
        """Kill everything and close all connections."""
        if not self.ended:
            self.ended = True
            self.execs.stop_all()
            self.news.tell()

    def retire(self, keep: float) -> None:
        """End every program, and itself after so long, used or not."""
        self.execs.stop_all(protocol.EndCause.KILLED)
        end = self._clock() - self._created + keep
        self._idle_timeout = None
        self._max_lifetime = end if self._max_lifetime is None else min(end, self._max_lifetime)

    def check_time(self) -> bool:
        """Whether it lives. A running exec is not idle; the lifetime ends whatever is going on."""
        now = self._clock()
        idle = self._idle_timeout is not None and now - self._used >= self._idle_timeout
        old = self._max_lifetime is not None and now - self._created >= self._max_lifetime
        if old or (idle and not self.execs.running):
            self.end()
        return not self.ended

    def hello(self) -> protocol.GuestHello:
        return protocol.GuestHello(
            protocol=protocol.PROTOCOL,
            window=protocol.WINDOW_BYTES,
            features=[],
            workspace=self.files.workspace,
            arch=platform.machine(),
        )

    def status(self) -> protocol.StatusReport:
        now, lifetime, files = self._clock(), self._max_lifetime, self.files
        left = None if lifetime is None else round(max(0, lifetime - now + self._created) * 1000)
        total = _UNLIMITED if files.max_bytes is None else files.max_bytes
        max_files = _UNLIMITED if files.max_files is None else files.max_files
        return protocol.StatusReport(
            uptime_ms=round((now - self._created) * 1000),
            idle_ms=round((now - self._used) * 1000),
            lifetime_left_ms=left,
            running_execs=self.execs.running,
            connections=self.connections,
            workspace_total_bytes=total,
            workspace_free_bytes=total - files.used_bytes,
            workspace_free_files=max_files - files.used_files,
        )


def _effective(spec: SandboxSpec) -> Effective:
    limits = spec.limits.model_dump(exclude_none=True)
    return Effective(
        engine="fake",
        runtime=spec.runtime,
        image=spec.image,
        workspace=spec.workspace,
        network=spec.network,
        profile="fake",
        limits=limits,
        not_held={name: "the fake engine has no processes" for name in _NOT_HELD if name in limits},
    )

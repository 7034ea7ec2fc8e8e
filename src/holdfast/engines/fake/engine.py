"""The engine `fake`: sandboxes in memory, for tests of agents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

import anyio.abc

from ... import engines, errors
from ...abc import AlreadyThere, Capability, Engine, EngineStatus, SandboxRecord, SandboxSpec
from . import waiting
from .answers import Answers
from .pipe import pair
from .programs import Programs
from .sandbox import FakeSandbox
from .server import FakeConnection

_OWN = frozenset({Capability.COMPUTE, Capability.CODE, Capability.NETWORK_OFF, Capability.WORKSPACE_LIMIT})


class FakeEngine(Engine, Programs):
    """Sandboxes in memory: real files, scripted programs. `with FakeEngine() as fake:` makes it the engine "fake".

    Args:
        clock: what sessions and timeouts go by; a `FakeClock` lets a test pass half an hour at once.
        claim: capabilities to claim besides its own, to test code that asks for images or network. It has neither.
    """

    name = "fake"

    def __init__(self, clock: waiting.Clock = time.monotonic, claim: Iterable[Capability] = ()) -> None:
        super().__init__()
        self._clock = clock
        self._capabilities = _OWN | frozenset(claim)
        self._sandboxes: dict[str, FakeSandbox] = {}
        self._made = 0
        self._installed: AbstractContextManager[None] | None = None

    def __enter__(self) -> FakeEngine:
        self._installed = engines.installed(self)
        self._installed.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed is not None:
            self._installed.__exit__(kind, error, trace)

    async def check(self) -> EngineStatus:
        return EngineStatus(True, "1", self._capabilities, "it runs no real programs: it is for tests")

    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        if spec.image is not None and Capability.IMAGES not in self._capabilities:
            raise errors.EngineUnavailable("the engine fake has no images; FakeEngine(claim=…) can claim some")
        if spec.network and Capability.NETWORK_ON not in self._capabilities:
            raise errors.EngineUnavailable("the engine fake has no network; FakeEngine(claim=…) can claim one")
        there = self._sandboxes.get(spec.name)
        if there is not None and there.check_time():
            raise AlreadyThere(spec.name)
        self._made += 1
        made = FakeSandbox(spec, self._made, self, self._clock)
        self._sandboxes[spec.name] = made
        return made.record

    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        found = self._sandboxes.get(record.name)
        if found is None or found.record.address != record.address or not found.check_time():
            raise errors.SessionNotFound("the session has ended; open it again")
        ours, theirs = pair()
        waiting.spawn(FakeConnection(found, theirs, Answers(found)).serve)
        return ours

    async def destroy(self, record: SandboxRecord) -> None:
        found = self._sandboxes.get(record.name)
        if found is not None and found.record.address == record.address:
            found.end()
            del self._sandboxes[record.name]

    async def list(self) -> Sequence[SandboxRecord]:
        return [replace(one.record, alive=one.check_time()) for one in self._sandboxes.values()]

"""The contract of an engine. Read this first.

An engine hosts sandboxes. Everything that an agent can do in one is done by the guest, the same way everywhere;
so an engine only makes a sandbox with the guest in it, opens a byte stream to the guest, removes the sandbox, and
lists what it has. To add an engine: a module with a subclass of `Engine`, one line in `engines/__init__.py`, and
the conformance suite (`tests/conformance`) passes for it.

The words: a *mode* is compute (one run) or code (a session); an *engine* hosts the sandbox; the *guest* is our program
inside; a *session* is one persistent sandbox, found by its key; a *run* is one one-shot execution; an *exec* is one
command inside a sandbox.

What the author of an engine must know:
- `create` returns when the guest listens. If it fails, or is cancelled at any point, nothing of it stays behind.
- `create` is atomic across processes: of two callers with one name, one creates, the other gets `AlreadyThere`.
- The guest's clock ends a session; the engine must make sure that the sandbox goes away with its guest.
- What cannot be guaranteed must not be claimed: `Capability`s are declared by `check`, limits are read back into
  `Effective`. A limit on the workspace that cannot be held makes `create` fail; any other is named in `not_held`.
- Host and sandbox need not share a file system, a clock or a machine.
- All names that come back from `list` may have been made by somebody else: verify before you trust them.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import anyio.abc

from .config import Limits


class Mode(StrEnum):
    """What a sandbox is for."""

    COMPUTE = "compute"
    CODE = "code"


class Capability(StrEnum):
    """What an engine can guarantee on this machine. A request that needs what is missing is refused, not weakened."""

    COMPUTE = "compute"
    """one-shot runs"""
    CODE = "code"
    """sessions that outlive their client"""
    IMAGES = "images"
    """any container image; without it the host's own runtimes are used"""
    REAL_PROCESSES = "real_processes"
    """programs are real: everything but `fake`"""
    NETWORK_OFF = "network_off"
    NETWORK_ON = "network_on"
    MEMORY_LIMIT = "memory_limit"
    """memory of all processes together"""
    PROCESS_LIMIT = "process_limit"
    CPU_LIMIT = "cpu_limit"
    WORKSPACE_LIMIT = "workspace_limit"
    """bytes and files of the workspace"""
    PACKAGES = "packages"
    """packages of a language are installed before a run"""
    USER_SWITCH = "user_switch"
    """programs as another user of the sandbox"""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether an engine works here, what it can guarantee, and what to do if it does not."""

    available: bool
    version: str = ""
    capabilities: frozenset[Capability] = frozenset()
    reason: str = ""
    """why it is not available, or which guarantee is missing and why"""
    fix: str = ""
    """what to type"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far something is that a caller has to wait for."""

    what: str
    """such as `pulling python:3.11-slim`"""
    done_bytes: int
    total_bytes: int | None
    """as far as it is known by now"""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A sandbox to make: all decisions are made, policy is applied."""

    name: str
    """unique among the engine's sandboxes: the hash of a session's key, or random for a run"""
    mode: Mode
    runtime: str
    """python, node or bash"""
    image: str | None = None
    workspace: str
    """absolute path inside"""
    limits: Limits
    network: bool = False
    env: dict[str, str] = field(default_factory=dict[str, str])
    packages: tuple[str, ...] = ()
    """of the runtime's language, to be there when the program starts"""
    cache: bool = False
    """compute: an equal run that the engine had before may be answered with what came out then"""
    timeout: float | None = None
    """compute: seconds that the program has; the guest ends it, but limits on CPU time follow from it too"""
    idle_timeout: float | None = None
    max_lifetime: float | None = None
    keep_for: float = 0
    """seconds that a session stays for a look after its workflow has ended; the engine only remembers it"""
    on_progress: OnProgress | None = field(default=None, compare=False, repr=False)
    """called in the caller's event loop while an engine does what takes long, such as a pull"""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """for people and for `list`: the session's key in readable form"""

    @property
    def digest(self) -> str:
        """Of what a caller can ask for: two callers of one session may differ in it."""
        wanted = [self.runtime, self.image, self.workspace, self.limits.model_dump(), self.network, self.env]
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A sandbox as it really is."""

    engine: str
    runtime: str
    image: str | None
    workspace: str
    network: bool
    profile: str
    limits: dict[str, Any]
    """each limit with its value"""
    not_held: dict[str, str]
    """limits that this engine cannot hold here, each with the reason"""
    held_by: dict[str, str] = field(default_factory=dict[str, str])
    """what holds each of the others"""

    def as_tool(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "runtime": self.runtime,
            "image": self.image,
            "workspace": self.workspace,
            "network": self.network,
            "profile": self.profile,
            "limits": self.limits,
            "not_held": self.not_held,
            "held_by": self.held_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """A sandbox that an engine has. `address` is the engine's own business."""

    name: str
    engine: str
    address: str
    created_at: float
    """seconds since 1970"""
    alive: bool
    effective: Effective
    spec_digest: str
    """of what was asked for: a resumed session with another digest is not what the caller wanted"""
    labels: dict[str, str]
    expires_at: float | None = None
    """when the guest's clock ends it at the latest; seconds since 1970"""
    keep_for: float = 0


class AlreadyThere(Exception):
    """`create` lost a race: a sandbox of this name exists."""


class Engine(abc.ABC):
    """Hosts sandboxes."""

    name: ClassVar[str]
    swept_in_background: ClassVar[bool] = False
    """What dead sandboxes left is removed now and then, by another event loop; `list` and `destroy` must not mind."""

    @abc.abstractmethod
    async def check(self) -> EngineStatus:
        """Whether the engine works here. Quick, and without side effects."""

    @abc.abstractmethod
    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        """Make a sandbox whose guest listens.

        Raises:
            AlreadyThere: there is one of this name.
            EngineUnavailable: the engine does not work here.
            EngineFailed: it could not be made; nothing stays behind.
        """

    @abc.abstractmethod
    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        """Open a byte stream to the guest.

        Raises:
            SessionNotFound: the sandbox is gone.
        """

    @abc.abstractmethod
    async def destroy(self, record: SandboxRecord) -> None:
        """Remove the sandbox and all that belongs to it. Calling it again, or for one that is gone, is fine."""

    @abc.abstractmethod
    async def list(self) -> Sequence[SandboxRecord]:
        """All sandboxes of this engine that are ours, dead ones that left something too."""

    async def notes(self) -> dict[str, str]:
        """What only a look from inside can tell, for `doctor`: it may run something, and fetch an image for that."""
        return {}

    async def find(self, name: str) -> SandboxRecord | None:
        """The living sandbox of this name."""
        return next((record for record in await self.list() if record.name == name and record.alive), None)

    @asynccontextmanager
    async def once(self, spec: SandboxSpec) -> AsyncIterator[tuple[anyio.abc.ByteStream, Effective]]:
        """A sandbox for one run: gone when the block is left. An engine that can do it in one step overrides this.

        An engine that has no stream while a program runs yields a `ReplayStream`: it is given all that the host has to
        say, starts a guest that replays it, and gives back all that the guest said.
        """
        record = await self.create(spec)
        try:
            stream = await self.dial(record)
            try:
                yield stream, record.effective
            finally:
                await anyio.aclose_forcefully(stream)
        finally:
            with anyio.move_on_after(30, shield=True):
                await self.destroy(record)

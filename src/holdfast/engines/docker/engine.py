"""The engine `docker`: a sandbox is a container whose PID 1 is the guest; the daemon's list is the registry."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import anyio
import anyio.abc

from ... import errors, runtimes
from ...abc import AlreadyThere, Capability, Effective, Engine, EngineStatus, SandboxRecord, SandboxSpec
from ...config import settings
from ...guest.connection import config_frame
from . import fence, images, labels, near, readback
from .about import About
from .address import address
from .container import DIAL_USER, FOLDER, GUEST, SOCKET, STRICT_USER, Container, guest_archive
from .containers import Containers
from .daemon import Daemon, Refused
from .lifetime import may_live
from .stream import MultiplexedStream

_CHECK_SECONDS = 5.0
_FIX = "start Docker, or set DOCKER_HOST to a daemon that this user may use"
_ALL = frozenset(
    {
        Capability.COMPUTE,
        Capability.CODE,
        Capability.IMAGES,
        Capability.REAL_PROCESSES,
        Capability.NETWORK_OFF,
        Capability.NETWORK_ON,
        Capability.WORKSPACE_LIMIT,
        Capability.MEMORY_LIMIT,
        Capability.PROCESS_LIMIT,
        Capability.CPU_LIMIT,
    }
)
_CAPABILITY = {"memory": Capability.MEMORY_LIMIT, "pids": Capability.PROCESS_LIMIT, "cpu": Capability.CPU_LIMIT}


class DockerEngine(Engine):
    """Containers of the daemon that DOCKER_HOST names."""

    name = "docker"
    swept_in_background = True

    def __init__(self) -> None:
        self._daemon = Daemon()
        self._containers = Containers(self._daemon)
        self._known: dict[str, About] = {}
        self._no_quota: set[str] = set()  # daemons that said so
        self._attached: dict[str, MultiplexedStream] = {}  # to containers that were made and not yet dialled

    async def check(self) -> EngineStatus:
        try:
            about = await self._about()
        except errors.EngineUnavailable as error:
            return EngineStatus(False, reason=str(error), fix=_FIX)
        capabilities = _ALL - {_CAPABILITY[name] for name in about.lacks}
        missing = [f"the daemon's kernel holds no limit on {', '.join(about.lacks)}"] if about.lacks else []
        if settings().profile == "standard":
            capabilities |= {Capability.USER_SWITCH}
            if not about.quota or address().text in self._no_quota:
                missing.append(
                    "beside the workspace programs may write without limit, because the daemon's storage has no "
                    "quotas; in the profile strict they may not write there at all"
                )
        return EngineStatus(True, about.version, capabilities, "; ".join(missing))

    async def _about(self) -> About:
        where = address().text
        if where not in self._known:
            try:
                found = await self._daemon.call("answer", "GET", "/info", deadline=_CHECK_SECONDS)
            except Refused as error:
                raise errors.EngineUnavailable(f"the Docker daemon refuses to work: {error}") from error
            if not isinstance(found, dict):
                raise errors.EngineUnavailable("what answers there is not a Docker daemon")
            self._known[where] = About.parse(found)
        return self._known[where]

    # --- made

    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        record, stream = await self._make(spec, "serve")
        # Whoever made it dials next, and need not wait for an exec: PID 1 listens on its stdin too.
        self._attached[record.address] = stream
        return record

    @contextlib.asynccontextmanager
    async def once(self, spec: SandboxSpec) -> AsyncIterator[tuple[anyio.abc.ByteStream, Effective]]:
        """As `create` and `dial`, over the container's own stdin and stdout: it ends when the caller goes."""
        record, stream = await self._make(spec, "run")
        try:
            yield stream, record.effective
        except errors.SessionLost as error:
            if said := bytes(stream.stderr).decode(errors="replace").strip():
                raise errors.EngineFailed(f"the sandbox broke down: {errors.printable(said)[:500]}") from error
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
                await self._containers.remove(record.address)

    async def _make(
        self, spec: SandboxSpec, serves: Literal["serve", "run"]
    ) -> tuple[SandboxRecord, MultiplexedStream]:
        about, config = await self._about(), settings()
        about.require(spec.limits)
        reference = spec.image or runtimes.runtime(spec.runtime).image
        image = await images.get(self._daemon, reference, config.allowed_images, spec.on_progress)
        where = address().text
        quota = about.quota and config.profile == "standard" and spec.limits.workspace_mb is not None
        bounded, closed = quota and where not in self._no_quota, config.network_deny if spec.network else ()
        container = Container(spec, image, config.profile, about, serves, bounded, closed)
        try:
            return await self._start(container)
        except Refused as error:
            if not container.quota or "storage-opt" not in str(error):
                raise errors.EngineFailed(f"the container could not be made: {error}") from error
            self._no_quota.add(where)
        return await self._make(spec, serves)

    async def _start(self, container: Container) -> tuple[SandboxRecord, MultiplexedStream]:
        spec, asked = container.spec, container.host_config()
        created_at, effective = time.time(), container.effective(asked)
        if settings().require_limits and effective.not_held:
            raise errors.LimitsNotAvailable(
                "this Docker daemon cannot hold "
                + "; ".join(f"{name} ({why})" for name, why in effective.not_held.items())
                + ". HOLDFAST_REQUIRE_LIMITS is set: ask for none of them or use another daemon"
            )
        marks = labels.make(spec, effective, created_at)
        try:
            # Shielded: the daemon makes it even if nobody waits for the answer, which tells what is to be removed.
            with anyio.CancelScope(shield=True):
                address, warnings = await self._containers.create(spec.name, container.body(marks))
        except Refused as error:
            if error.status != 409:
                raise
            await self._clear(spec.name)  # the name is taken: whoever made it first, wins
            raise AlreadyThere(spec.name) from error
        stream = None
        try:
            await self._containers.place(address, FOLDER, guest_archive(container.about.arch))
            found = await self._containers.inspect(address)
            recorded = {} if found is None else found["HostConfig"]
            readback.check(asked, recorded, warnings)
            stream = await self._containers.attach(address, stderr=container.serves == "run")
            await self._containers.start(address)
            if container.closed:
                await fence.build(self._containers, container, address, effective, settings().network_allow)
            await stream.send(config_frame(container.guest_config()))  # from now on it has tenants
        except BaseException:
            with anyio.CancelScope(shield=True):
                if stream is not None:
                    await anyio.aclose_forcefully(stream)
                await self._containers.remove(address)
            raise
        record = SandboxRecord(
            name=spec.name,
            engine="docker",
            address=address,
            created_at=created_at,
            alive=True,
            effective=container.effective(recorded),
            spec_digest=spec.digest,
            labels=spec.labels,
            expires_at=None if spec.max_lifetime is None else created_at + spec.max_lifetime,
            keep_for=spec.keep_for,
        )
        return record, stream

    async def _clear(self, name: str) -> None:
        """Make way if the container of this name is ours and dead; refuse if it is somebody else's."""
        found = await self._containers.inspect(name)
        if found is None:
            return
        marks = labels.verified(found["Config"]["Labels"])
        if marks is None:
            raise errors.EngineFailed(
                f"a container named {name} exists that this owner did not make; processes that share sessions "
                "need the same HOLDFAST_OWNER_KEY"
            )
        if not may_live(found["State"]["Status"], found["Created"], marks, self._daemon.now):
            await self._containers.remove(found["Id"])

    # --- reached

    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        attached = self._attached.pop(record.address, None)
        if short := await self._near(record):
            if attached is not None:
                await anyio.aclose_forcefully(attached)
            return short
        if attached is not None:
            return attached
        group = STRICT_USER if record.effective.profile == "strict" else 0
        try:
            return await self._containers.exec(record.address, f"{DIAL_USER}:{group}", [GUEST, "dial", SOCKET])
        except Refused as error:
            raise await self._gone(record, error) from error

    async def _near(self, record: SandboxRecord) -> anyio.abc.ByteStream | None:
        found = await self._containers.inspect(record.address)
        if found is None or found["State"]["Status"] != "running":  # a paused one would take the call, and be silent
            return None
        return await near.dial(int(found["State"]["Pid"]), record.address, SOCKET)

    async def _gone(self, record: SandboxRecord, error: Refused) -> errors.SandboxError:
        """The error that fits what became of the container."""
        found = await self._containers.inspect(record.address)
        if found is None or found["State"]["Status"] in ("exited", "dead", "removing"):
            return errors.SessionNotFound("the session has ended, and its workspace is gone; open it again")
        if found["State"]["Paused"]:
            return errors.SessionLost("the session's container is paused; unpause it, or close the session")
        return errors.EngineFailed(f"the session's container does not let us in: {error}")

    # --- removed

    async def destroy(self, record: SandboxRecord) -> None:
        if stream := self._attached.pop(record.address, None):
            await anyio.aclose_forcefully(stream)
        await self._containers.remove(record.address)

    # --- found

    async def find(self, name: str) -> SandboxRecord | None:
        found = await self._containers.inspect(name)
        if found is None or not found["State"]["Running"]:
            return None
        record = self._record(found["Id"], found["Config"]["Labels"], found["State"]["Status"], found["Created"])
        return record if record is not None and record.alive else None

    async def list(self) -> Sequence[SandboxRecord]:
        wanted = json.dumps({"label": [f"{labels.MANAGED}=1", f"{labels.OWNER}={labels.owner()}"]})
        found = await self._containers.list(wanted)
        records = [self._record(each["Id"], each["Labels"], each["State"], each["Created"]) for each in found]
        return [record for record in records if record is not None]

    def _record(self, address: str, raw: dict[str, str], state: str, created: str | float) -> SandboxRecord | None:
        """None if the labels are not ours."""
        marks = labels.verified(raw)
        if marks is None:
            return None
        return SandboxRecord(
            name=marks["name"],
            engine="docker",
            address=address,
            created_at=float(marks["created"]),
            alive=may_live(state, created, marks, self._daemon.now),
            effective=Effective(**json.loads(marks["effective"])),
            spec_digest=marks["digest"],
            labels=json.loads(marks["key"]),
            expires_at=float(marks["expiry"]) if marks["expiry"] else None,
            keep_for=float(marks["keep_for"]),
        )

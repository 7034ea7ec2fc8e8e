"""The engine `docker`: a sandbox is a container whose PID 1 is the guest; the daemon's list is the registry."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio
import anyio.abc

from ... import errors, runtimes
from ...abc import AlreadyThere, Capability, Effective, Engine, EngineStatus, SandboxRecord, SandboxSpec
from ...config import settings
from ..sockets import SocketStream
from . import images, labels
from .container import GUEST, SOCKET, Container
from .daemon import SLOW, Client, Daemon, said
from .stream import ExecStream

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_NEVER_STARTED_SECONDS = 60.0
_FIX = "start Docker, or set DOCKER_HOST to a daemon that this user may use"


@dataclass(frozen=True, slots=True)
class _About:
    """What the daemon says of itself."""

    version: str
    arch: str
    cgroup_version: int
    lacks: tuple[str, ...]
    """limits that its kernel cannot hold"""


class DockerEngine(Engine):
    """Containers of the daemon that DOCKER_HOST names."""

    name = "docker"

    def __init__(self) -> None:
        self._daemon = Daemon()
        self._about: _About | None = None

    async def check(self) -> EngineStatus:
        try:
            about = await self._ask()
        except errors.EngineUnavailable as error:
            return EngineStatus(False, reason=str(error), fix=_FIX)
        capabilities = {
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
        if settings().profile == "standard":
            capabilities.add(Capability.USER_SWITCH)
        missing = {"memory": Capability.MEMORY_LIMIT, "pids": Capability.PROCESS_LIMIT, "cpu": Capability.CPU_LIMIT}
        capabilities -= {missing[name] for name in about.lacks}
        reason = f"the daemon's kernel holds no limit on {', '.join(about.lacks)}" if about.lacks else ""
        return EngineStatus(True, about.version, frozenset(capabilities), reason)

    async def _ask(self) -> _About:
        if self._about is None:
            found = await self._daemon.call("answer", lambda client: client.info())
            if found.get("OSType") != "linux" or found.get("Architecture") not in _ARCHITECTURES:
                raise errors.EngineUnavailable(
                    f"the Docker daemon runs on {found.get('OSType')}/{found.get('Architecture')}; "
                    "the guest is built for linux/amd64 and linux/arm64"
                )
            holds = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpu": "CpuCfsQuota"}
            self._about = _About(
                version=str(found.get("ServerVersion", "")),
                arch=_ARCHITECTURES[found["Architecture"]],
                cgroup_version=2 if found.get("CgroupVersion") == "2" else 1,
                lacks=tuple(name for name, field in holds.items() if not found.get(field)),
            )
        return self._about

    async def create(self, spec: SandboxSpec) -> SandboxRecord:
        about = await self._ask()
        config = settings()
        reference = spec.image or runtimes.runtime(spec.runtime).image
        images.allow(reference, config.allowed_images)
        self._require(spec, about)
        image = await self._daemon.call("pull the image", lambda client: images.image_id(client, reference), 900.0)
        container = Container(spec, image, reference, config.profile, about.arch, about.cgroup_version)
        created_at = time.time()
        marks = labels.make(spec, asdict(container.effective()), created_at)
        made: list[str] = []

        def start(client: Client) -> str:
            made.append(container.create(client, marks))
            client.start(made[0])
            return made[0]

        from docker.errors import APIError

        try:
            # Shielded: a thread cannot be cancelled, and what it makes must be known to be removed.
            with anyio.CancelScope(shield=True):
                address = await self._daemon.call("start a container", start, SLOW)
        except APIError as error:
            if error.status_code == 409 and not made:  # the name is taken: whoever made it first, wins
                await self._clear(spec.name)
                raise AlreadyThere(spec.name) from error
            await self._discard(made)
            raise errors.EngineFailed(f"the container could not be started: {said(error)}") from error
        except BaseException:
            await self._discard(made)
            raise
        return SandboxRecord(
            name=spec.name,
            engine="docker",
            address=address,
            created_at=created_at,
            alive=True,
            effective=container.effective(),
            spec_digest=spec.digest,
            labels=spec.labels,
        )

    def _require(self, spec: SandboxSpec, about: _About) -> None:
        """A limit that was asked for holds, or nothing is made."""
        asked = {"memory": spec.limits.memory_mb, "pids": spec.limits.processes, "cpu": spec.limits.cpu_millicores}
        for name in about.lacks:
            if asked[name] is not None:
                raise errors.LimitsNotAvailable(
                    f"a limit on {name} was asked for and this Docker daemon's kernel cannot hold it; "
                    "ask for none (None) or use another daemon"
                )

    async def _discard(self, made: list[str]) -> None:
        with anyio.CancelScope(shield=True):
            for address in made:
                await self._remove(address)

    async def _clear(self, name: str) -> None:
        """Make way if the container of this name is ours and dead; refuse if it is somebody else's."""
        found = await self._inspect(name)
        if found is None:
            return
        if labels.verified(found["Config"]["Labels"]) is None:
            raise errors.EngineFailed(
                f"a container named {name} exists that this owner did not make; processes that share sessions "
                "need the same HOLDFAST_OWNER_KEY"
            )
        state = found["State"]
        if state["Status"] in ("exited", "dead") or (
            state["Status"] == "created" and _age(found) > _NEVER_STARTED_SECONDS
        ):
            await self._remove(found["Id"])

    async def dial(self, record: SandboxRecord) -> anyio.abc.ByteStream:
        from docker.errors import APIError

        def hijack(client: Client) -> SocketStream:
            made = client.exec_create(record.address, [GUEST, "dial", SOCKET], stdin=True, stdout=True, stderr=True)
            answer = client.exec_start(made["Id"], socket=True)
            raw = getattr(answer, "_sock", answer)
            # The answer's own object would close the socket when it is collected.
            return SocketStream(raw.dup() if hasattr(raw, "dup") else raw)

        try:
            return ExecStream(await self._daemon.call("open a stream", hijack))
        except APIError as error:
            raise await self._gone(record, error) from error

    async def _gone(self, record: SandboxRecord, error: Exception) -> errors.SandboxError:
        """The error that fits what became of the container."""
        found = await self._inspect(record.address)
        if found is None or found["State"]["Status"] in ("exited", "dead", "removing"):
            return errors.SessionNotFound("the session has ended; open it again")
        if found["State"]["Paused"]:
            return errors.SessionLost("the session's container is paused; unpause it, or close the session")
        return errors.EngineFailed(f"the session's container does not let us in: {said(error)}")

    async def destroy(self, record: SandboxRecord) -> None:
        await self._remove(record.address)

    async def _remove(self, address: str) -> None:
        from docker.errors import APIError

        def remove(client: Client) -> None:
            try:
                client.remove_container(address, v=True, force=True)
            except APIError as error:
                # 404: gone; 409: somebody else removes it just now
                if error.status_code not in (404, 409):
                    raise

        try:
            await self._daemon.call("remove a container", remove, SLOW)
        except APIError as error:
            raise errors.EngineFailed(f"the container could not be removed: {said(error)}") from error
        for _ in range(200):  # a removal under way frees the name a moment later
            if await self._inspect(address) is None:
                return
            await anyio.sleep(0.02)

    async def _inspect(self, address: str) -> Any | None:
        from docker.errors import NotFound

        def look(client: Client) -> Any | None:
            try:
                return client.inspect_container(address)
            except NotFound:
                return None

        return await self._daemon.call("answer", look)

    async def find(self, name: str) -> SandboxRecord | None:
        found = await self._inspect(name)
        record = None if found is None else _record(found["Id"], found["Config"]["Labels"], found["State"]["Running"])
        return record if record is not None and record.alive else None

    async def list(self) -> Sequence[SandboxRecord]:
        found = await self._daemon.call(
            "list containers", lambda client: client.containers(all=True, filters={"label": f"{labels.MANAGED}=1"})
        )
        records = [_record(each["Id"], each["Labels"], _may_live(each)) for each in found]
        return [record for record in records if record is not None]


def _may_live(listed: dict[str, Any]) -> bool:
    """Running, or made so recently that somebody may be about to start it."""
    young = time.time() - float(listed["Created"]) < _NEVER_STARTED_SECONDS
    return listed["State"] in ("running", "paused") or (listed["State"] == "created" and young)


def _age(inspected: dict[str, Any]) -> float:
    marks = labels.verified(inspected["Config"]["Labels"]) or {}
    return time.time() - float(marks.get("created", 0))


def _record(address: str, raw: dict[str, str], alive: bool) -> SandboxRecord | None:
    """None if the labels are not ours."""
    marks = labels.verified(raw)
    if marks is None:
        return None
    return SandboxRecord(
        name=marks["name"],
        engine="docker",
        address=address,
        created_at=float(marks["created"]),
        alive=alive,
        effective=Effective(**json.loads(marks["effective"])),
        spec_digest=marks["digest"],
        labels=json.loads(marks["key"]),
    )

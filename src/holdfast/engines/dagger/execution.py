"""One run as one query: the host's half of the conversation goes in as a secret or as a file, the guest's comes out.

A secret is not in the engine's logs, spans and caches, and costs nothing; a long request is synced as a file instead.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from ... import errors
from ...abc import SandboxSpec
from ...guest.protocol import GuestConfig, GuestLimits
from .prepare import ANSWER, FOLDER, GUEST
from .query import EngineGone, QueryFailed
from .session import DaggerSession

HOME = "/home/sandbox"
REQUEST = f"{FOLDER}/request"
PROOF = f"{FOLDER}/proof"
_MAX_SECRET_BYTES = 1 << 20
_COPY_SECONDS = 120.0
_SCRATCH_MB = {"/tmp": 64, "/var/tmp": 16, "/run/lock": 1, HOME: 16}
"""folders that anybody may write to, each bounded; the workspace has its own limit"""
_GUEST_TASKS = 104
"""threads of the guest, of its supervisors and their parked children, which are all the program's user"""
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class Execution:
    """A run on a prepared base."""

    session: DaggerSession
    base: str
    spec: SandboxSpec

    async def deliver(self, said: bytes, max_answer_bytes: int) -> bytes:
        """Start a guest that hears `said`, and give back what it answers. Cancelling it kills everything inside."""
        # With a cache, equal runs must be equal for the engine: then the request is its own name.
        name = hashlib.sha256(said).hexdigest()[:32] if self.spec.cache else self.spec.name
        stem = self.session.folder / secrets.token_hex(8)
        try:
            return await self._exchange(said, name, stem, max_answer_bytes)
        except QueryFailed as error:
            raise errors.EngineFailed(f"the Dagger engine could not run it: {_reason(error)}") from error
        except EngineGone as error:
            raise _lost(str(error)) from error
        except TimeoutError:
            raise errors.SessionLost("the Dagger engine did not answer in the run's time, and was given up") from None
        except OSError as error:
            if not self.session.alive:  # whoever noticed first has removed the folder
                raise _lost("its session was closed") from error
            reason = f"{error.strerror or error}, in {self.session.folder.parent}"
            raise errors.EngineFailed(f"what goes to the Dagger engine cannot be kept here: {reason}") from error
        finally:
            for end in (".request", ".proof", ".answer"):
                stem.with_suffix(end).unlink(missing_ok=True)

    async def _exchange(self, said: bytes, name: str, stem: Path, max_answer_bytes: int) -> bytes:
        deadline = self.spec.max_lifetime or _COPY_SECONDS
        request = _written(stem.with_suffix(".request"), said)
        variables: dict[str, Any] = {
            "base": self.base,
            "name": name,
            "args": [GUEST, "replay", self._config(name).model_dump_json(exclude_none=True)],
            "request": await self._upload(request, len(said), name),
        }
        parameters = "$base: ContainerID!, $name: String!, $args: [String!]!, $request: ID!"
        kind = "Secret" if len(said) <= _MAX_SECRET_BYTES else "File"
        # In the environment, where only the guest sees it: a run whose name is new is executed.
        chain = "withExec(args: $args, noInit: true) { stdout id }"
        chain = f'withEnvVariable(name: "HOLDFAST_RUN", value: $name) {{ {chain} }}'
        chain = f'withMounted{kind}(path: "{REQUEST}", source: $request) {{ {chain} }}'
        if self.spec.cache:
            proof = _written(stem.with_suffix(".proof"), self.spec.name.encode())
            variables["proof"] = await self.session.secret(f"file://{proof}", "holdfast-proof")
            parameters += ", $proof: ID!"
            chain = f'withMountedSecret(path: "{PROOF}", source: $proof) {{ {chain} }}'
        for path, megabytes in self._mounts().items():
            chain = f'withMountedTemp(path: "{path}", size: {megabytes << 20}) {{ {chain} }}'
        text = f"query({parameters}) {{ loadContainerFromID(id: $base) {{ {chain} }} }}"
        ended = _innermost(await self.session.query(text, variables, deadline))
        word, _, rest = str(ended["stdout"]).strip().partition(" ")
        if word == "inline" and len(rest) <= max_answer_bytes * 2:
            try:
                return base64.b64decode(rest, validate=True)
            except binascii.Error as error:
                raise errors.ProtocolError("the guest's answer is no base64") from error
        if word == "file" and rest.isdecimal():
            return await self._download(str(ended["id"]), stem.with_suffix(".answer"), int(rest), max_answer_bytes)
        raise errors.ProtocolError("the guest's answer is neither inline nor in a file")

    async def _upload(self, path: Path, size: int, name: str) -> str:
        if size <= _MAX_SECRET_BYTES:
            return await self.session.secret(f"file://{path}", name)
        return await self.session.host_file(path, _COPY_SECONDS + size / 4e6)

    async def _download(self, container: str, path: Path, size: int, max_bytes: int) -> bytes:
        if size > max_bytes:
            raise errors.ProtocolError(f"the guest's answer has {size} bytes, and may have {max_bytes}")
        text = f"""query($from: ContainerID!, $to: String!) {{
            loadContainerFromID(id: $from) {{ file(path: "{ANSWER}") {{ export(path: $to) }} }} }}"""
        await self.session.query(text, {"from": container, "to": str(path)}, _COPY_SECONDS + size / 4e6)
        answer = await anyio.to_thread.run_sync(path.read_bytes)
        if len(answer) != size:
            raise errors.ProtocolError(f"the guest's answer has {len(answer)} bytes, and it said {size}")
        return answer

    def _mounts(self) -> dict[str, int]:
        # Inner mounts are named first, outer ones last.
        limit = self.spec.limits.workspace_mb
        return {**_SCRATCH_MB, **({} if limit is None else {self.spec.workspace: limit})}

    def _config(self, name: str) -> GuestConfig:
        limits, lifetime = self.spec.limits, self.spec.max_lifetime
        cores = max(1.0, (limits.cpu_millicores or 1000) / 1000)
        return GuestConfig(
            workspace=self.spec.workspace,
            max_lifetime_ms=None if lifetime is None else round(lifetime * 1000),
            # One user for each run: the kernel counts processes by user, over all containers of the machine.
            user=_user(name),
            own=[self.spec.workspace, HOME],
            request=REQUEST,
            answer=ANSWER,
            proof=PROOF if self.spec.cache else None,
            env={**_ENVIRONMENT, **self.spec.env},
            limits=GuestLimits(
                open_files=limits.open_files,
                file_bytes=limits.max_file_size_bytes,
                files=limits.max_files,
                processes=None if limits.processes is None else limits.processes + _GUEST_TASKS,
                data_bytes=None if limits.memory_mb is None else limits.memory_mb << 20,
                cpu_seconds=None if self.spec.timeout is None else round(self.spec.timeout * cores) + 1,
            ),
            network=self.spec.network,
        )


def _user(name: str) -> int:
    return 1_000_000 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 1_000_000_000


def _written(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def _innermost(data: Any) -> dict[str, Any]:
    while isinstance(data, dict) and len(data) == 1:
        (data,) = data.values()
    return dict(data)


def _lost(reason: str) -> errors.SessionLost:
    return errors.SessionLost(f"the Dagger engine went away during the run, and nobody knows how far it came: {reason}")


def _reason(error: QueryFailed) -> str:
    return errors.printable(error.stderr.strip()[-400:]) or error.message[:400]

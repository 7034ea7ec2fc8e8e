"""What a sandbox with network may not reach: the daemon's machine, its neighbours, private nets, a cloud's metadata.

A helper joins the sandbox's network for a moment, before the guest there has its config and so before it has tenants,
and leaves routes that refuse. It is a container of its own because the sandbox never has the right to change a route.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from ... import errors
from ...abc import Effective
from . import labels
from .container import GUEST, Container
from .containers import Containers
from .daemon import Refused
from .seccomp import profile

_PATIENCE = 20.0
_DONE = b"fenced\n"
"""the last word of `guest fence`"""


async def build(
    containers: Containers, container: Container, sandbox: str, effective: Effective, allowed: Sequence[str]
) -> None:
    """Close what is denied and not allowed, for the started container `sandbox`.

    Raises:
        LimitsNotAvailable: it could not be done; the sandbox must not be used.
    """
    # Never a session: it has no key. What is left of it when its maker is killed is swept like one.
    spec = replace(container.spec, name=f"{container.spec.name}-fence", labels={}, max_lifetime=_PATIENCE, keep_for=0)
    body = _body(container, sandbox, allowed, labels.make(spec, effective, time.time()))
    said = b"it did not answer in time"
    try:
        with anyio.CancelScope(shield=True):  # as with a sandbox: the answer tells what is to be removed
            address, _ = await containers.create(spec.name, body)
        try:
            with anyio.move_on_after(_PATIENCE):
                said = await _run(containers, address)
        finally:
            with anyio.CancelScope(shield=True):
                await containers.remove(address)
    except Refused as error:
        said = str(error).encode()
    if said != _DONE:
        why = errors.printable(said.decode(errors="replace").strip() or "its helper ended without a word")
        raise errors.LimitsNotAvailable(
            f"the Docker daemon could not close private networks to the sandbox, so it was not made: {why[:500]}; "
            "ask for no network, or the operator sets HOLDFAST_NETWORK_DENY=none"
        )


async def _run(containers: Containers, address: str) -> bytes:
    """What the helper says on stderr until it ends."""
    stream = await containers.attach(address, stderr=True)
    try:
        await containers.start(address)
        with suppress(anyio.EndOfStream):
            while True:
                await stream.receive()
        return bytes(stream.stderr)
    finally:
        await anyio.aclose_forcefully(stream)


def _body(container: Container, sandbox: str, allowed: Sequence[str], marks: dict[str, str]) -> dict[str, Any]:
    plan = {"Deny": list(container.closed), "Allow": list(allowed)}
    return {
        "Image": container.image.id,
        "Entrypoint": [GUEST],
        "Cmd": ["fence", json.dumps(plan)],
        "User": "0:0",
        "WorkingDir": "/",
        "Labels": marks,
        "Healthcheck": {"Test": ["NONE"]},
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "NetworkMode": f"container:{sandbox}",
            "VolumesFrom": [f"{sandbox}:ro"],  # the guest, which nobody has been near yet
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no"},
            "Init": False,
            "IpcMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_ADMIN"],
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={profile(container.about.arch, True)}"],
            "PidsLimit": 64,
            "Memory": 64 << 20,
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }

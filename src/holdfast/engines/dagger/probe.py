"""What only a look from inside tells about a Dagger engine: versions, and what keeps a run from the network."""

from __future__ import annotations

import anyio.to_thread

from ... import errors
from ...compute.runner import run
from ...config import settings
from . import cli

_LOOK = r"""
sed -n 's/^ *\([^ :]*\):.*/interface \1/p' /proc/net/dev
(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1 | sed 's/^.*: /socket /'
sed -n 's/^[^:]*:\(memory\|\):/cgroup /p' /proc/self/cgroup
"""


async def notes() -> dict[str, str]:
    """Facts by name; a probe that does not run is one of them."""
    found: dict[str, str] = {}
    if program := cli.find():
        found["Dagger CLI"] = f"{program} {await anyio.to_thread.run_sync(cli.version_of, program)}"
    try:
        result = await run(_LOOK, runtime="bash", engine="dagger", timeout=30)
    except errors.SandboxError as error:
        return {**found, "probe": f"failed: {error.message}"}
    words = [line.partition(" ") for line in result.stdout.splitlines()]
    interfaces = [rest for word, _, rest in words if word == "interface" and rest != "lo"]
    refused = any(
        rest in ("Operation not permitted", "Permission denied") for word, _, rest in words if word == "socket"
    )
    found["no network by the guest's filter"] = "holds" if refused else "does NOT hold: sockets can be made"
    found["no network by the engine's CNI"] = (
        f"not set up: runs have {', '.join(interfaces)}; examples/deploy shows how" if interfaces else "holds: only lo"
    )
    if parent := settings().dagger_cgroup_parent:
        found["the cgroup of runs"] = _in_cgroup(parent, [rest for word, _, rest in words if word == "cgroup"])
    return found


def _in_cgroup(parent: str, paths: list[str]) -> str:
    """What a run sees of its own cgroups: the memory controller's of version 1, and the one of version 2."""
    if any(path.startswith(f"/{parent.strip('/')}/") for path in paths):
        return f"holds: runs are in {parent}"
    if known := [path for path in paths if path != "/"]:
        return f"does NOT hold: runs are in {known[0]}, not in {parent}; see docs/deployment.md"
    return "cannot be seen from inside: look on the engine's machine"

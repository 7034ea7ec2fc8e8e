"""What the daemon made of what it was asked for. A field that it dropped or changed must not pass for a limit.

Old kernels, rootless daemons and other makes of the API (Podman) take a limit, say nothing, and do not hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import errors

_NEVER = (
    "Privileged",
    "Binds",
    "Devices",
    "DeviceRequests",
    "DeviceCgroupRules",
    "VolumesFrom",
    "Mounts",
    "PidMode",
    "UTSMode",
    "UsernsMode",
    "ExtraHosts",
    "Links",
    "PortBindings",
    "PublishAllPorts",
    "GroupAdd",
    "Sysctls",
)
"""what our containers do not have; the daemon spells it False, null, "" or an empty list"""


def check(asked: Mapping[str, Any], recorded: Mapping[str, Any], warnings: list[str] | None) -> None:
    """Compare a container's HostConfig with what was asked for, field by field.

    Raises:
        LimitsNotAvailable: names the fields that differ; nothing may be started.
    """
    differences = list(_differences(asked, recorded))
    if differences or warnings:
        said = "; ".join([*differences, *(errors.printable(str(each)) for each in warnings or [])])
        raise errors.LimitsNotAvailable(
            f"the Docker daemon does not make the container as it was asked to, so none was started: {said[:500]}"
        )


def _differences(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    for name, wanted in asked.items():
        found = recorded.get(name)
        if _plain(name, wanted) != _plain(name, found):
            yield f"{name} is {_short(found)}, not {_short(wanted)}"
    for name in _NEVER:
        if name not in asked and recorded.get(name):
            yield f"{name} is {_short(recorded[name])}"


def _plain(name: str, value: Any) -> Any:
    """One spelling for one meaning: the daemon sorts, leaves out what is empty, and gives capabilities a prefix."""
    if isinstance(value, dict):
        return {key: plain for key, each in value.items() if (plain := _plain(name, each))} or None
    if isinstance(value, list):
        return sorted((_plain(name, each) for each in value), key=repr) or None
    if isinstance(value, str) and name.startswith("Cap"):
        return value.removeprefix("CAP_")
    return value or None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"

"""Which image a sandbox runs on: allowed, there or pulled, and then pinned by its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import errors
from ...abc import OnProgress
from ...images import allow, parse
from .daemon import Daemon, Refused
from .pull import pull


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the daemon has."""

    reference: str
    """as it was asked for"""
    id: str
    """a tag may move between the check and the start"""
    env: dict[str, str]
    """variables that its maker set, such as the PATH of its programs"""


async def get(daemon: Daemon, text: str, rules: tuple[str, ...], on_progress: OnProgress | None) -> Image:
    """An image of the daemon, pulled if it is not there.

    Raises:
        ImageNotAllowed: the operator does not allow it.
        ImageNotFound: it is not there, and its registry does not have it or cannot be reached.
    """
    name = allow(text, rules)
    found = await _inspect(daemon, name)
    if found is None:
        await pull(daemon, text, parse(name), on_progress)
        found = await _inspect(daemon, name)
    if found is None:
        raise errors.ImageNotFound(f"the image {text} is not there after it was pulled")
    env = (line.partition("=") for line in (found.get("Config") or {}).get("Env") or [])
    return Image(text, str(found["Id"]), {key: value for key, _, value in env})


async def _inspect(daemon: Daemon, name: str) -> dict[str, Any] | None:
    try:
        found = await daemon.call("answer", "GET", f"/images/{name}/json")
    except Refused as error:
        if error.status == 404:
            return None
        raise errors.EngineFailed(f"the Docker daemon does not tell about the image {name}: {error}") from error
    if not isinstance(found, dict):
        raise errors.EngineFailed(f"the Docker daemon does not tell about the image {name}")
    return found

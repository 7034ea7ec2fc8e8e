"""Pulling an image: how far it is, what went wrong, and that it stops when nobody waits for it any more."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread

from ... import errors
from ...abc import OnProgress, Progress
from ...images import Reference
from .daemon import Daemon, Refused

_PULL_SECONDS = 900.0
_UNREACHABLE = (
    "connection refused",
    "no such host",
    "timeout",
    "timed out",
    "network is unreachable",
    "no route to host",
    "server misbehaving",
    "tls:",
    "x509:",
    "http response to https",
    "EOF",
)


async def pull(daemon: Daemon, text: str, name: Reference, on_progress: OnProgress | None) -> None:
    """Have the daemon fetch an image. Cancelling the call ends the pull.

    Raises:
        RegistryUnreachable: its registry does not answer the daemon.
        ImageNotFound: the registry does not have it, or not for us.
    """
    bars = _Bars(text, on_progress)
    query = {"fromImage": name.repository, "tag": name.digest or name.tag}
    headers = {"Connection": "close"}
    try:
        with anyio.fail_after(_PULL_SECONDS):
            if secret := await anyio.to_thread.run_sync(_credentials, name.repository, abandon_on_cancel=True):
                headers["X-Registry-Auth"] = secret
            bars.tell()
            await daemon.follow("pull the image", "POST", "/images/create", query, headers, bars.take)
    except TimeoutError:
        raise errors.ImageNotFound(f"the image {text} was not pulled within {_PULL_SECONDS:.0f} s") from None
    except Refused as error:
        raise _failed(text, str(error)) from error
    if bars.failure:
        raise _failed(text, bars.failure)


def _failed(text: str, said: str) -> errors.ImageNotFound:
    said = errors.printable(said)[:300]
    if any(word.lower() in said.lower() for word in _UNREACHABLE):
        return errors.RegistryUnreachable(f"the image {text} is not there, and its registry cannot be reached: {said}")
    return errors.ImageNotFound(f"the image {text} is not there and cannot be pulled: {said}")


def _credentials(repository: str) -> str | None:
    """What this user's `docker login` left for the registry, as the daemon wants it."""
    from docker import auth  # only here: it takes longer to import than all the rest takes to run
    from docker.errors import DockerException

    try:
        registry, _ = auth.resolve_repository_name(repository)
        found = auth.load_config().resolve_authconfig(registry)
    except (DockerException, OSError, ValueError):
        return None  # the registry will say that it wants to know who we are
    return auth.encode_header(found).decode() if found else None


class _Bars:
    """The layers of one pull, added up."""

    def __init__(self, text: str, on_progress: OnProgress | None) -> None:
        self._what = f"pulling {text}"
        self._on_progress = on_progress
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self.failure = ""

    def take(self, line: dict[str, Any]) -> None:
        if "error" in line:
            self.failure = str(line["error"])
            return
        layer, status = str(line.get("id", "")), line.get("status")
        detail = line.get("progressDetail")
        if status == "Downloading" and isinstance(detail, dict):
            self._done[layer] = _count(detail.get("current"))
            self._total[layer] = max(_count(detail.get("total")), self._done[layer])
        elif layer in self._total:  # it is verified and unpacked after that
            self._done[layer] = self._total[layer]
        self.tell()

    def tell(self) -> None:
        if self._on_progress:
            total = sum(self._total.values())
            self._on_progress(Progress(self._what, sum(self._done.values()), total or None))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0

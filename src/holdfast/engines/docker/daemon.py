"""Calls to the Docker daemon: in threads, each with a deadline for the whole of it.

docker-py's own timeout counts for each read of a socket, and is switched off on hijacked streams; a daemon that drips
a byte each second would hold a caller for ever.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ... import errors

_T = TypeVar("_T")
Client = Any
"""docker.APIClient, which has no types"""

QUICK = 20.0
"""seconds for what only looks something up"""
SLOW = 60.0
"""seconds for what makes or removes a container"""


class Daemon:
    """The daemon that DOCKER_HOST names, or the one of this machine."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[Client] = queue.SimpleQueue()
        self._version: str | None = None

    async def call(self, what: str, work: Callable[[Client], _T], deadline: float = QUICK) -> _T:
        """Run `work` with a client of its own, and give up on it after `deadline` seconds.

        Raises:
            EngineUnavailable: the daemon is not there or does not answer in time.
            docker.errors.APIError: it answered, and said no.
        """
        try:
            with anyio.fail_after(deadline):
                return await anyio.to_thread.run_sync(functools.partial(self._work, work), abandon_on_cancel=True)
        except TimeoutError:
            raise errors.EngineUnavailable(
                f"the Docker daemon did not {what} within {deadline:.0f} s; is it overloaded or stopped?"
            ) from None

    def _work(self, work: Callable[[Client], _T]) -> _T:
        from docker.errors import DockerException
        from requests.exceptions import ConnectionError as NoConnection
        from requests.exceptions import Timeout

        try:
            client = self._client()
            result = work(client)
        except (NoConnection, Timeout) as error:
            raise errors.EngineUnavailable(f"the Docker daemon cannot be reached: {_reason(error)}") from error
        except DockerException as error:
            if "Error while fetching server API version" in str(error):
                raise errors.EngineUnavailable(f"no Docker daemon answers: {_reason(error)}") from error
            raise
        self._idle.put(client)  # not after an error: its connection may be in any state
        return result

    def _client(self) -> Client:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            import docker
            from docker.utils import kwargs_from_env

            client = docker.APIClient(version=self._version or "auto", timeout=SLOW, **kwargs_from_env())
            self._version = client.api_version
            return client


def _reason(error: Exception) -> str:
    """The innermost words: requests wraps them in three layers of repr."""
    text = str(error)
    for known in ("No such file or directory", "Connection refused", "Permission denied", "timed out"):
        if known in text:
            return known
    return errors.printable(text[:200])


def said(error: Exception) -> str:
    """What the daemon said, for a message."""
    return errors.printable(str(getattr(error, "explanation", None) or error))[:500]

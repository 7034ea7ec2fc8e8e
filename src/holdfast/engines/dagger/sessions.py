"""The session that all runs of this process share: made when it is first needed, replaced when it is worn or dead."""

from __future__ import annotations

import atexit
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import anyio.to_thread

from ... import errors
from . import cli
from .address import FIX, NOT_SET, Address
from .prepare import greet
from .query import EngineGone, QueryFailed
from .session import DaggerSession


class Sessions:
    """At most one that takes new runs; a worn one ends with its last run. Safe to use from many threads and loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._current: DaggerSession | None = None
        self._where: Address | None = None
        atexit.register(self.close)

    @asynccontextmanager
    async def use(self, where: Address | None, recycle_after: int) -> AsyncIterator[DaggerSession]:
        """A living session with the engine at `where`, for one run.

        Raises:
            EngineUnavailable: there is no engine; says what to do.
        """
        if where is None:
            raise errors.EngineUnavailable(f"{NOT_SET}; {FIX}")
        while (found := self._take(where, recycle_after)) is None:
            made = await anyio.to_thread.run_sync(self._start, where, recycle_after, abandon_on_cancel=True)
            if made is not None and not made.alive:
                raise _gone("its session ended at once")
        try:
            await _greeted(found)
            yield found
        finally:
            self._give(found)

    def _take(self, where: Address, recycle_after: int) -> DaggerSession | None:
        with self._lock:
            found = self._fitting(where, recycle_after)
            if found is not None:
                found.runs += 1
                found.in_flight += 1
            return found

    def _fitting(self, where: Address, recycle_after: int) -> DaggerSession | None:
        current = self._current
        fits = current is not None and where == self._where and not current.retired and current.alive
        return current if current is not None and fits and current.runs < recycle_after else None

    def _start(self, where: Address, recycle_after: int) -> DaggerSession | None:
        """Make a session and leave it to whoever takes it: the caller may have been cancelled by then.

        Returns:
            What was made; None: there is one by now.
        """
        with self._starting:
            with self._lock:
                if self._fitting(where, recycle_after):
                    return None
            if reason := where.unreachable():
                raise errors.EngineUnavailable(f"{reason}; is the Dagger engine up?")
            made = _started(cli.find() or cli.fetch(), where)
            with self._lock:
                worn, self._current, self._where = self._current, made, where
                if worn is not None:
                    worn.retired = True
            if worn is not None and worn.in_flight == 0:
                worn.close()
            return made

    def _give(self, back: DaggerSession) -> None:
        with self._lock:
            back.in_flight -= 1
            over = back.retired and back.in_flight == 0
        if over:
            # In a thread of its own: whoever gives it back need not wait for it, and may have been cancelled.
            threading.Thread(target=back.close).start()

    def close(self) -> None:
        with self._lock:
            current, self._current = self._current, None
        if current is not None:
            current.close()


def _started(program: str, where: Address) -> DaggerSession:
    """A session by a CLI whose version fits."""
    with ThreadPoolExecutor(1) as beside:  # asking takes less time than the start, and says why that failed
        version = beside.submit(cli.version_of, program)
        try:
            made = DaggerSession.start(program, where)
        except errors.EngineUnavailable as error:
            if reason := cli.skew("", version.result()):
                raise errors.EngineUnavailable(f"{reason}; {error}") from error
            raise
    if reason := cli.skew("", version.result()):
        made.close(patience=0)
        raise errors.EngineUnavailable(reason)
    return made


async def _greeted(session: DaggerSession) -> None:
    """The first word on a session may be the one that finds its engine, or its process, gone."""
    try:
        await greet(session)
    except (EngineGone, QueryFailed, TimeoutError) as error:
        raise _gone(str(error) or "it did not answer in time") from error


def _gone(reason: str) -> errors.EngineUnavailable:
    return errors.EngineUnavailable(f"the Dagger engine went away before the program ran: {reason}; try again")

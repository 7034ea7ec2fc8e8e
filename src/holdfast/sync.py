"""The blocking surface: the async one, driven by one background thread.

The thread and its event loop start with the first call and end with the process. Each blocking function or
method is made from its async twin, so there is nothing to keep in step by hand.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from . import aio
from .abc import Effective
from .code.keys import SessionKey

_P = ParamSpec("_P")
_T = TypeVar("_T")
_starting = threading.Lock()


@functools.cache
def _start() -> BlockingPortal:
    opened = start_blocking_portal()
    portal = opened.__enter__()
    atexit.register(opened.__exit__, None, None, None)
    return portal


def wait_for(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run `work` in the loop and wait for it. Ctrl-C cancels it, and is raised when it has cleaned up."""
    future = _begin(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def awaited(work: Callable[[], Awaitable[_T]]) -> _T:
    """As `wait_for`, from a coroutine. For what is used by blocking callers too, or from one event loop after another,
    and must live in one loop all the while. Cancelling it cancels the work, and waits until that has cleaned up."""
    ended = threading.Event()

    async def noted() -> _T:
        try:
            return await work()
        finally:
            ended.set()

    future = _begin(noted)
    try:
        return await _in_thread(future.result, abandon_on_cancel=True)
    except BaseException:
        future.cancel()
        with CancelScope(shield=True):
            await _in_thread(ended.wait)
        raise


async def _in_thread(call: Callable[[], _T], *, abandon_on_cancel: bool = False) -> _T:
    # a limiter of its own: who waits for a long program must not keep others from their threads
    return await to_thread.run_sync(call, abandon_on_cancel=abandon_on_cancel, limiter=CapacityLimiter(1))


def _begin(work: Callable[[], Awaitable[_T]]) -> Future[_T]:
    with _starting:
        portal = _start()
    return portal.start_task_soon(work)


def _function(call: Callable[_P, Awaitable[_T]]) -> Callable[_P, _T]:
    @functools.wraps(call)
    def blocking(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return wait_for(functools.partial(call, *args, **kwargs))

    return blocking


def _session_method(
    call: Callable[Concatenate[aio.Session, _P], Awaitable[_T]],
) -> Callable[Concatenate[Session, _P], _T]:
    @functools.wraps(call)
    def blocking(self: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return wait_for(functools.partial(call, self.asynchronous, *args, **kwargs))

    return blocking


def _process_method(
    call: Callable[Concatenate[aio.Process, _P], Awaitable[_T]],
) -> Callable[Concatenate[Process, _P], _T]:
    @functools.wraps(call)
    def blocking(self: Process, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return wait_for(functools.partial(call, self.asynchronous, *args, **kwargs))

    return blocking


run = _function(aio.run)
end_agent = _function(aio.end_agent)
end_workflow = _function(aio.end_workflow)
sweep = _function(aio.sweep)
list_sessions = _function(aio.list_sessions)
toolset = _function(aio.toolset)


class Process:
    """A started program. It belongs to the session, not to this client."""

    def __init__(self, asynchronous: aio.Process) -> None:
        self.asynchronous = asynchronous
        self.id = asynchronous.id

    read = _process_method(aio.Process.read)
    wait = _process_method(aio.Process.wait)
    kill = _process_method(aio.Process.kill)
    write_stdin = _process_method(aio.Process.write_stdin)


def _starter(
    call: Callable[Concatenate[aio.Session, _P], Awaitable[aio.Process]],
) -> Callable[Concatenate[Session, _P], Process]:
    @functools.wraps(call)
    def blocking(self: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> Process:
        return Process(wait_for(functools.partial(call, self.asynchronous, *args, **kwargs)))

    return blocking


class Session:
    """One persistent sandbox; `with` ends a private session and lets go of a shared one: see `aio.Session`."""

    def __init__(self, asynchronous: aio.Session) -> None:
        self.asynchronous = asynchronous

    @property
    def key(self) -> SessionKey:
        return self.asynchronous.key

    @property
    def created(self) -> bool:
        """True: this call made it; False: it was there and is shared."""
        return self.asynchronous.created

    @property
    def changed(self) -> bool:
        """True: it was there, with another runtime or other limits than this call asked for."""
        return self.asynchronous.changed

    @property
    def workspace_lost(self) -> bool:
        """True: this process had another sandbox under this key, and all that was in it is gone."""
        return self.asynchronous.workspace_lost

    @property
    def effective(self) -> Effective:
        """Engine, runtime, limits and network as they really are."""
        return self.asynchronous.effective

    def process(self, exec_id: str) -> Process:
        """A program that was started before, maybe by another client."""
        return Process(self.asynchronous.process(exec_id))

    exec = _session_method(aio.Session.exec)
    start = _starter(aio.Session.start)
    processes = _session_method(aio.Session.processes)
    write = _session_method(aio.Session.write)
    read = _session_method(aio.Session.read)
    read_part = _session_method(aio.Session.read_part)
    read_text = _session_method(aio.Session.read_text)
    stat = _session_method(aio.Session.stat)
    delete = _session_method(aio.Session.delete)
    mkdir = _session_method(aio.Session.mkdir)
    move = _session_method(aio.Session.move)
    upload = _session_method(aio.Session.upload)
    download = _session_method(aio.Session.download)
    stage = _session_method(aio.Session.stage)
    publish = _session_method(aio.Session.publish)
    status = _session_method(aio.Session.status)
    release = _session_method(aio.Session.release)
    close = _session_method(aio.Session.close)
    list = _session_method(aio.Session.list)


class _Opened(AbstractContextManager[Session]):
    def __init__(self, opened: AbstractAsyncContextManager[aio.Session]) -> None:
        self._opened = opened
        self._session: aio.Session | None = None

    def __enter__(self) -> Session:
        self._session = wait_for(self._opened.__aenter__)
        return Session(self._session)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait_for(functools.partial(self._opened.__aexit__, kind, error, trace))


def _opener(
    call: Callable[_P, AbstractAsyncContextManager[aio.Session]],
) -> Callable[_P, AbstractContextManager[Session]]:
    @functools.wraps(call)
    def blocking(*args: _P.args, **kwargs: _P.kwargs) -> AbstractContextManager[Session]:
        return _Opened(call(*args, **kwargs))

    return blocking


open_session = _opener(aio.open_session)

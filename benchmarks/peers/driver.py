"""The other half of ../_peers.py: lets the harness drive one peer, in the peers' own environment.

A line of JSON comes in, a line goes out: {"do": "exec", "argv": ["true"]} -> {"ok": true, "ms": 53.1}. The time is
taken here, around the peer's own call, so that neither the harness nor this protocol is part of it. What a peer prints
goes to standard error.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

IMAGE = "python:3.11-slim"
PRINT = "print(1)"


class Peer:
    """What the harness can ask for. A peer overrides what its documented API has, plain or async."""

    package = ""
    """as PyPI has it"""
    shares_files = False
    """its files are the host's, in a bind mount: nothing is transferred"""

    def open(self) -> Any:
        """A sandbox, ready for use; the one before was closed."""
        raise NotImplementedError

    def close(self) -> Any:
        """Gone, by the quickest way: how a sandbox is removed is not measured."""
        raise NotImplementedError

    def exec(self, argv: list[str]) -> Any:
        """What it wrote to stdout."""
        raise NotImplementedError

    def python(self, code: str) -> Any:
        """Its own way to run code; what that wrote to stdout."""
        raise NotImplementedError

    def write(self, name: str, content: bytes) -> Any:
        raise NotImplementedError

    def read(self, name: str) -> Any:
        """bytes, or text that was not decoded by hand"""
        raise NotImplementedError

    def limited(self, command: str, seconds: int) -> Any:
        """A shell's line under the peer's own timeout; it raises or returns when the peer says that time is over."""
        raise NotImplementedError

    def can(self) -> list[str]:
        return [name for name in OPERATIONS if getattr(type(self), name) is not getattr(Peer, name)]


OPERATIONS = ("open", "exec", "python", "write", "read", "limited")


async def _call(function: Callable[..., Any], *words: Any) -> Any:
    found = function(*words)
    return await found if inspect.isawaitable(found) else found


class _Served:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._content = b""
        self._opened = False

    async def open(self) -> dict[str, Any]:
        self._opened = True
        return await self._timed(self._peer.open)

    async def first(self) -> dict[str, Any]:
        """Open to first output."""

        async def both() -> None:
            await _call(self._peer.open)
            self._expect(await _call(self._peer.python, PRINT), "1")

        self._opened = True
        return await self._timed(both)

    async def once(self) -> dict[str, Any]:
        """Open, run, close: what a one-shot run costs."""

        async def all_three() -> None:
            await _call(self._peer.open)
            self._expect(await _call(self._peer.python, PRINT), "1")
            await _call(self._peer.close)
            self._opened = False

        self._opened = True
        return await self._timed(all_three)

    async def close(self) -> dict[str, Any]:
        """Fine also where nothing is open."""
        was, self._opened = self._opened, False
        return await self._timed(self._peer.close) if was else {"ms": 0}

    async def exec(self, argv: list[str]) -> dict[str, Any]:
        return await self._timed(self._peer.exec, argv)

    async def python(self, code: str) -> dict[str, Any]:
        return await self._timed(self._peer.python, code)

    async def call(self, name: str, words: dict[str, Any]) -> dict[str, Any]:
        """What only this peer has."""

        async def it() -> None:
            await _call(partial(getattr(self._peer, name), **words))

        return await self._timed(it)

    async def write(self, name: str, size: int) -> dict[str, Any]:
        if len(self._content) != size:
            self._content = b"x" * size
        return await self._timed(self._peer.write, name, self._content)

    async def read(self, name: str, size: int) -> dict[str, Any]:
        started = time.perf_counter()
        found = await _call(self._peer.read, name)
        took = time.perf_counter() - started
        if len(found) != size:
            raise ValueError(f"it read {len(found)} bytes of {size}")
        return {"ms": took * 1000}

    async def flood(self, argv: list[str]) -> dict[str, Any]:
        """An exec that writes much: by how much this process grew at its peak, and what it kept."""
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        answer = await self._timed(self._peer.exec, argv)
        return {**answer, "mb": (_memory("VmHWM") - before) / 1024}

    async def limited(self, command: str, seconds: int) -> dict[str, Any]:
        async def to_its_end() -> None:
            try:
                await _call(self._peer.limited, command, seconds)
            except Exception as error:  # each peer says it in another way
                print(f"{type(error).__name__}: {error}", file=sys.stderr)

        return await self._timed(to_its_end)

    async def many(self, at_once: int, each: int, what: str, words: list[Any]) -> dict[str, Any]:
        """So many at once, each again and again. What blocks runs in threads."""
        function = getattr(self._peer, what)

        async def repeat() -> None:
            for _ in range(each):
                if inspect.iscoroutinefunction(function):
                    await function(*words)
                else:
                    await anyio.to_thread.run_sync(function, *words, limiter=limiter)

        async def together() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(at_once):
                    tasks.start_soon(repeat)

        limiter = anyio.CapacityLimiter(at_once)
        return await self._timed(together)

    async def _timed(self, function: Callable[..., Any], *words: Any) -> dict[str, Any]:
        started = time.perf_counter()
        await _call(function, *words)
        return {"ms": (time.perf_counter() - started) * 1000}

    @staticmethod
    def _expect(output: object, text: str) -> None:
        if not isinstance(output, str) or text not in output:
            raise ValueError(f"it printed {output!r} and not {text!r}")


def _memory(key: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{key}:")[1].split()[0])


async def _serve(peer: Peer, served: _Served) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    hello = {"version": importlib.metadata.version(peer.package), "can": peer.can(), "shares_files": peer.shares_files}
    out.write(json.dumps(hello) + "\n")
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"ok": True, **await getattr(served, request.pop("do"))(**request)}
        except Exception as error:  # whatever a peer raises is its answer
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
    await served.close()


def serve(peer: Peer) -> None:
    """Until the harness closes our stdin; SIGTERM ends what hangs, and what is open is closed then too."""
    served = _Served(peer)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        anyio.run(_serve, peer, served)
    except SystemExit:
        anyio.run(served.close)

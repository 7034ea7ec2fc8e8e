"""How long is it from opening a session to the first output of a program in it?

Cold: there was none. Resumed: another session object of this process. Second process: from the start of a new Python,
whose own start is the floor.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from functools import partial

from _floors import HOST_PYTHON, RawContainer, host
from _measure import Contest, Row, Took, chosen_engines, main, quick
from _peers import Driver, peers

from holdfast import aio

PRINT = ["python3", "-c", "print(1)"]
ATTACH = """
import sys, holdfast
with holdfast.open_session(workflow=sys.argv[1], engine=sys.argv[2], create=False) as box:
    assert box.exec(["python3", "-c", "print(1)"]).stdout == "1\\n"
"""


async def measure(rounds: int) -> list[Row]:
    return [*await _cold(rounds), *await _again(rounds)]


async def _cold(rounds: int) -> list[Row]:
    """How it is removed is not part of it."""
    contest = Contest("cold: open, print(1)", warm_up=("ours", "floor", "peer") if not quick() else ("ours", "floor"))
    if "local" in chosen_engines():
        contest.ours("holdfast, local", partial(_open, "local"))
    if "docker" in chosen_engines():
        contest.floor("Docker API: create to exec", _raw)
        contest.ours("holdfast, docker", partial(_open, "docker"), "Docker API: create to exec", "1.0x")
    async with peers("open", "python", opened=False) as found:
        for peer in found:
            contest.peer(peer.name, partial(_first, peer))
        return await contest.in_turns(rounds, 80)


async def _open(engine: str) -> Took:
    started = time.perf_counter()
    async with aio.open_session(engine=engine) as box:
        assert (await box.exec(PRINT)).stdout == "1\n"
        return _since(started)


async def _raw() -> Took:
    started = time.perf_counter()
    made = RawContainer()
    assert made.exec(PRINT) == b"1\n"
    took = _since(started)
    made.remove()
    return took


async def _first(peer: Driver) -> Took:
    took = await peer.time("first")
    await peer.ask("close")
    return took


def _since(started: float) -> Took:
    return Took((time.perf_counter() - started) * 1000)


async def _again(rounds: int) -> list[Row]:
    resumed, second = Contest("resumed in the same process, print(1)"), Contest("from a second process, print(1)")
    second.floor("host: an empty python3", partial(host, [sys.executable, "-c", "pass"]))
    async with AsyncExitStack() as stack:
        for engine in chosen_engines():
            workflow = f"bench-{secrets.token_hex(8)}"
            box = await stack.enter_async_context(aio.open_session(engine=engine, workflow=workflow))
            stack.push_async_callback(box.close)
            name = f"holdfast, {engine}"
            if engine == "docker":
                base = "docker exec"
                command = ["docker", "exec", box.key.sandbox_name, *PRINT]
                for contest in (resumed, second):
                    contest.floor(base, partial(_process, command))
                resumed.ours(name, partial(_resume, workflow, engine), base)
                second.ours(name, partial(_process, [sys.executable, "-c", ATTACH, workflow, engine]), base, "1.3x")
            else:
                resumed.floor("host: python3", partial(host, [HOST_PYTHON, *PRINT[1:]]))
                resumed.ours(name, partial(_resume, workflow, engine), "host: python3")
                second.ours(name, partial(_process, [sys.executable, "-c", ATTACH, workflow, engine]))
        return [row for contest in (resumed, second) for row in await contest.in_turns(rounds)]


async def _resume(workflow: str, engine: str) -> None:
    async with aio.open_session(engine=engine, workflow=workflow, create=False) as found:
        assert (await found.exec(PRINT)).stdout == "1\n"


async def _process(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)  # blocking is what is measured


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=20, engines=("docker", "local"), quick_rounds=2)

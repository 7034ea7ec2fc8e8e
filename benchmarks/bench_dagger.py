"""What does a run on Dagger cost, compared with the same by hand through its SDK, with Docker and with local?"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio.to_thread
from _floors import IMAGE
from _machine import point_to_the_testbed
from _measure import Contest, Row, main, quick
from _peers import dagger_sdk
from bench_concurrency import together
from bench_flood import resident_mb

from holdfast import aio

CODE = "print(6 * 7)"
CONCURRENT, EACH = 8, 6


async def ours(engine: str) -> None:
    result = await aio.run(CODE, engine=engine)
    assert result.ok, result.stderr


async def container(client: Any) -> None:
    def run() -> None:
        made = client.containers.run(IMAGE, ["python3", "-c", CODE], detach=True, network_mode="none")
        made.wait()
        assert made.logs(stdout=True, stderr=False) == b"42\n"
        made.logs(stdout=False, stderr=True)
        made.remove(force=True)

    await anyio.to_thread.run_sync(run)


async def measure(rounds: int) -> list[Row]:
    point_to_the_testbed()
    import docker

    one, many = Contest("run print(6 * 7)"), Contest(f"{CONCURRENT} runs at once")
    each = 2 if quick() else EACH
    async with AsyncExitStack() as stack:
        client: Any = docker.from_env()
        stack.callback(client.close)
        for sdk in await stack.enter_async_context(dagger_sdk()):
            one.floor("Dagger SDK: with_exec", partial(sdk.time, "python", code=CODE))
            whole = partial(sdk.time, "call", name="whole", words={"code": CODE})
            one.floor("Dagger SDK: four queries", whole)
            together_there = partial(sdk.time, "many", at_once=CONCURRENT, each=each, what="python", words=[CODE])
            many.floor("Dagger SDK: with_exec", together_there)
        one.floor("Docker API: create to remove", partial(container, client))
        one.ours("holdfast, dagger", partial(ours, "dagger"), "Dagger SDK: with_exec", "1.2x")
        one.ours("holdfast, docker", partial(ours, "docker"))
        one.ours("holdfast, local", partial(ours, "local"))
        runs = partial(together, partial(ours, "dagger"), CONCURRENT, each)
        many.ours("holdfast, dagger", runs, "Dagger SDK: with_exec", "at least 0.95x")
        rows = await one.in_turns(rounds, 30)
        rows += await many.throughput(CONCURRENT * each, 1 if quick() else 4)
    return rows if quick() else [*rows, await _memory()]


async def _memory() -> Row:
    row = Row("holdfast, dagger", "MB", case="client's memory after 100 more runs", goal="flat")
    before = resident_mb()
    for _ in range(100):
        await ours("dagger")
    row.samples.append(max(0.0, resident_mb() - before))
    return row


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=30, engines=("dagger",), quick_rounds=4)

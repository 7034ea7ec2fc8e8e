"""What does a one-shot run of `print(1)` cost, from nothing to nothing?

Each contender makes its sandbox, runs the code, reads what it printed, and leaves nothing.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from _floors import BUBBLEWRAP, HOST_PYTHON, IMAGE, host, runc_bundle
from _machine import point_to_the_testbed
from _measure import Contest, NotHere, Row, chosen_engines, leave_out, main, quick
from _peers import dagger_sdk, peers

from holdfast import aio

CODE = "print(1)"


async def ours(engine: str) -> None:
    result = await aio.run(CODE, engine=engine)
    assert result.stdout == "1\n", result


async def container(client: Any) -> None:
    output = client.containers.run(IMAGE, ["python3", "-c", CODE], remove=True, network_mode="none")
    assert output == b"1\n"


async def measure(rounds: int) -> list[Row]:
    contest = Contest("run print(1)", warm_up=("ours", "floor", "peer") if not quick() else ("ours", "floor"))
    async with AsyncExitStack() as stack:
        contest.floor("host", partial(host, [HOST_PYTHON, "-c", CODE]))
        if "local" in chosen_engines():
            contest.floor("host: bwrap", partial(host, [*BUBBLEWRAP, HOST_PYTHON, "-c", CODE]))
            contest.ours("holdfast, local", partial(ours, "local"), "host: bwrap", "1.5x")
        if "docker" in chosen_engines():
            import docker

            try:
                contest.floor("runc", partial(host, stack.enter_context(runc_bundle(["python3", "-c", CODE]))))
            except NotHere as error:
                leave_out("runc", str(error))
            client: Any = docker.from_env()
            stack.callback(client.close)
            contest.floor("Docker API: run, rm", partial(container, client))
            contest.ours("holdfast, docker", partial(ours, "docker"), "Docker API: run, rm")
        if "dagger" in chosen_engines():
            point_to_the_testbed()
            for sdk in await stack.enter_async_context(dagger_sdk()):
                contest.floor("Dagger SDK: with_exec", partial(sdk.time, "python", code=CODE))
            contest.ours("holdfast, dagger", partial(ours, "dagger"), "Dagger SDK: with_exec", "1.2x")
        for peer in await stack.enter_async_context(peers("open", "python", opened=False)):
            contest.peer(peer.name, partial(peer.time, "once"))
        return await contest.in_turns(rounds, 75)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=30, engines=("local", "docker", "dagger"), quick_rounds=2)

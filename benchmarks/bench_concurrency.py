"""How many programs for each second run in one open session, when 1 to 64 are asked for at once?"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

import anyio
import anyio.to_thread
from _floors import TRUE, in_thread, raw_container
from _measure import Contest, Row, Took, Work, chosen_engines, main, quick
from _peers import Driver, peers

from holdfast import aio

AT_ONCE = (1, 4, 16, 64)
QUICK = (1, 16)
PEERS_AT_ONCE = (1, 4, 16)
"""64 threads of docker exec take the daemon minutes"""


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        boxes = {
            engine: await stack.enter_async_context(aio.open_session(engine=engine)) for engine in chosen_engines()
        }
        raw = stack.enter_context(raw_container()) if "docker" in boxes else None
        found = await stack.enter_async_context(peers("exec"))
        for at_once in QUICK if quick() else AT_ONCE:
            contest = Contest("exec true, so many at once", at_once)
            total = 64 if quick() else 192
            each = max(1, total // at_once)
            contest.floor("host", partial(together, partial(in_thread, TRUE), at_once, each))
            for engine, box in boxes.items():
                work = partial(together, partial(box.exec, TRUE), at_once, each)
                contest.ours(f"holdfast, {engine}", work, "host")
            rows += await contest.throughput(at_once * each, rounds)
            slow = Contest(contest.case, at_once)
            if raw and at_once <= PEERS_AT_ONCE[-1]:
                by_hand = partial(anyio.to_thread.run_sync, raw.exec, TRUE)
                slow.floor("Docker API: exec", partial(together, by_hand, at_once, max(1, 16 // at_once)))
            for peer in found if at_once in PEERS_AT_ONCE and not (quick() and at_once > 1) else []:
                slow.peer(peer.name, partial(_many, peer, at_once, max(1, 16 // at_once)))
            rows += await slow.throughput(at_once * max(1, 16 // at_once), min(rounds, 3))
    return rows


async def together(work: Work, at_once: int, each: int) -> None:
    """So many at once, each again and again."""

    async def repeat() -> None:
        for _ in range(each):
            await work()

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(repeat)


async def _many(peer: Driver, at_once: int, each: int) -> Took:
    return await peer.time("many", at_once=at_once, each=each, what="exec", words=[TRUE])


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=8, engines=("local", "docker"), quick_rounds=2)

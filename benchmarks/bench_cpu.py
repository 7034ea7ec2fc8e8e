"""How much CPU does one operation cost the whole machine: client, guest, daemon and kernel together?

From /proc/stat over many operations, less what the idle machine uses. Only a machine that does nothing else tells.
"""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
from _floors import BUBBLEWRAP, HOST_PYTHON, SYSTEM_PYTHON, TRUE, host, raw_container
from _measure import NotHere, Row, Who, Work, chosen_engines, leave_out, main, progress, quick
from _peers import peers

from holdfast import aio

IDLE = 1.0
BUSY = 0.2
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def busy_ms() -> float:
    """Of all cores since the start of the machine: user, nice, system, irq, softirq."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) * _TICK_MS


async def measure(rounds: int) -> list[Row]:
    seconds = 0.4 if quick() else 1.2
    cases: dict[str, dict[str, tuple[Who, Work]]] = {"exec true": {}, "exec python3 -c pass": {}, "run print(1)": {}}
    true, python, run = cases.values()
    async with AsyncExitStack() as stack:
        true["host"] = "floor", partial(host, TRUE)
        python["host"] = "floor", partial(host, [SYSTEM_PYTHON, "-c", "pass"])
        run["host: bwrap"] = "floor", partial(host, [*BUBBLEWRAP, HOST_PYTHON, "-c", "print(1)"])
        for engine in chosen_engines():
            name = f"holdfast, {engine}"
            box = await stack.enter_async_context(aio.open_session(engine=engine))
            true[name] = "ours", partial(box.exec, TRUE)
            program = SYSTEM_PYTHON if engine == "local" else "/usr/bin/python3"
            python[name] = "ours", partial(box.exec, [program, "-c", "pass"])
            run[name] = "ours", partial(aio.run, "print(1)", engine=engine)
        if "docker" in chosen_engines():
            raw = stack.enter_context(raw_container())

            async def by_hand(argv: list[str]) -> None:
                raw.exec(argv)

            true["Docker API: exec"] = "floor", partial(by_hand, TRUE)
            python["Docker API: exec"] = "floor", partial(by_hand, ["/usr/bin/python3", "-c", "pass"])
        for peer in await stack.enter_async_context(peers("exec")):
            true[peer.name] = "peer", partial(peer.ask, "exec", argv=TRUE)
            python[peer.name] = "peer", partial(peer.ask, "exec", argv=["python3", "-c", "pass"])
        rows = {
            (case, name): Row(name, "ms", case=case, who=who)
            for case, works in cases.items()
            for name, (who, _) in works.items()
        }
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            before = busy_ms()
            await anyio.sleep(IDLE)
            idle = (busy_ms() - before) / (IDLE * 1000)
            for case, works in cases.items():
                for name, (_, work) in list(works.items()):
                    try:
                        rows[case, name].samples.append(await _cost(work, seconds, idle))
                    except NotHere as error:
                        leave_out(name, str(error))
                        del works[name]
            if idle > BUSY:
                for row in rows.values():
                    row.note = f"noise: others used {idle:.0%} of a core"
        return list(rows.values())


async def _cost(work: Work, seconds: float, idle: float) -> float:
    """Milliseconds of CPU for one, over so many as fit in the time."""
    started, before, count = time.perf_counter(), busy_ms(), 0
    while time.perf_counter() - started < seconds:
        await work()
        count += 1
    took = (time.perf_counter() - started) * 1000
    return max(0.0, busy_ms() - before - idle * took) / count


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=3, engines=("local", "docker"), quick_rounds=1)

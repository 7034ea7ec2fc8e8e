"""What does an exec in an open session cost, compared with starting the same program on the host?"""

from __future__ import annotations

import subprocess
import sys
import time

import anyio
from _measure import Row, in_turns, main

from holdfast import aio

PYTHON = f"{sys.base_prefix}/bin/python3"
# What the sandbox's programs have, so that both sides start the same thing.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
CONCURRENT, EACH = 8, 60


async def host(*argv: str) -> None:
    subprocess.run(argv, env=ENVIRONMENT, check=True)  # blocking is what is measured


async def measure(rounds: int) -> list[Row]:
    async with aio.open_session(engine="local") as box:
        rows = await in_turns(
            {
                "host: true": lambda: host("/usr/bin/true"),
                "exec: true": lambda: box.exec(["/usr/bin/true"]),
                "host: python3 -c pass": lambda: host(PYTHON, "-c", "pass"),
                "exec: python3 -c pass": lambda: box.exec([PYTHON, "-c", "pass"]),
            },
            rounds,
            {"exec: true": ("host: true", "1.5x"), "exec: python3 -c pass": ("host: python3 -c pass", "1.2x")},
        )
        throughput = Row(f"{CONCURRENT} concurrent true", "op/s", goal="1000 op/s")
        for _ in range(5):
            started = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(CONCURRENT):
                    tasks.start_soon(_repeat, box)
            throughput.samples.append(CONCURRENT * EACH / (time.perf_counter() - started))
    return [*rows, throughput]


async def _repeat(box: aio.Session) -> None:
    for _ in range(EACH):
        await box.exec(["/usr/bin/true"])


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=100)

"""How does the cost grow with the number of open sessions, from 1 to 200?

Time to open one more, time of an exec in the first of them, and memory of the machine for each session.
"""

from __future__ import annotations

import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from _floors import TRUE
from _measure import Row, chosen_engines, main, progress, quick

from holdfast import aio

COUNTS = (1, 10, 50, 100, 200)
QUICK = (1, 10, 25)
AT_ONCE = 4
EXECS = 20
MEMORY = "memory of each, machine-wide"


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    for engine in chosen_engines():
        for _ in range(rounds):
            rows += await _grow(engine)
    return merged(rows)


async def _grow(engine: str) -> list[Row]:
    """Opens more and more, a few at once, and closes all of them."""
    rows: list[Row] = []
    boxes: list[aio.Session] = []
    before = used_mb()
    name = f"holdfast, {engine}"
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_close_all, boxes)
        for count in QUICK if quick() else COUNTS:
            missing = count - len(boxes)
            started = time.perf_counter()
            while len(boxes) < count:
                async with anyio.create_task_group() as tasks:
                    for _ in range(min(AT_ONCE, count - len(boxes))):
                        tasks.start_soon(_open, engine, boxes)
            opening = (time.perf_counter() - started) * 1000 / missing
            execs: list[float] = []
            for _ in range(EXECS):
                started = time.perf_counter()
                await boxes[0].exec(TRUE)
                execs.append((time.perf_counter() - started) * 1000)
            progress(f"{engine}: {count} sessions are open")
            rows.append(Row(name, "ms", [opening], case="open one more", at=count))
            rows.append(Row(name, "ms", execs, case="exec true in the first of them", at=count))
            if count >= 10:  # one alone is lost in the noise
                rows.append(Row(name, "MB", [(used_mb() - before) / count], case=MEMORY, at=count))
    return rows


async def _open(engine: str, boxes: list[aio.Session]) -> None:
    """Under a key of its own: one that nobody else finds ends with its block."""
    async with aio.open_session(engine=engine, session=f"bench-{secrets.token_hex(8)}") as box:
        boxes.append(box)
        await box.exec(TRUE)


async def _close_all(boxes: list[aio.Session]) -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def close(box: aio.Session) -> None:
        async with limiter:
            await box.close()

    async with anyio.create_task_group() as tasks:
        for box in boxes:
            tasks.start_soon(close, box)


def used_mb() -> float:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(fields["MemTotal"].split()[0]) - int(fields["MemAvailable"].split()[0])) / 1024


def merged(rows: list[Row]) -> list[Row]:
    """Samples of the same thing together."""
    out: dict[tuple[str, str, float | None], Row] = {}
    for row in rows:
        found = out.setdefault((row.case, row.name, row.at), row)
        if found is not row:
            found.samples += row.samples
    return list(out.values())


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=1, engines=("local", "docker"), quick_rounds=1)

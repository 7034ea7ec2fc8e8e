"""What does it cost to hand over 5 to 50 MB of JSON, transform it, and take the result back?

From the text in memory to the result in memory: a fresh sandbox each time, on each engine. The floor is a Python of the
host with two files; by hand on Dagger it is a `with_file` and an `export`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from _floors import HOST_PYTHON
from _machine import point_to_the_testbed
from _measure import Contest, Row, chosen_engines, main, quick
from _peers import Driver, dagger_sdk

from holdfast import Limits, aio

TRANSFORM = """
import json
rows = json.load(open("in.json"))
json.dump([row for row in rows if row["n"] % 50 == 0], open("out.json", "w"))
"""
MB = 1 << 20
SIZES = (5 * MB, 20 * MB, 50 * MB)
LIMITS = Limits(memory_mb=1024)
ROW, FILLER = 512, 480
BY_HAND = "Dagger SDK: by hand"


def document(size: int) -> str:
    """About so many bytes."""
    return json.dumps([{"n": n, "text": "x" * FILLER} for n in range(size // ROW)])


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        (folder / "main.py").write_text(TRANSFORM)
        sdk: list[Driver] = []
        if "dagger" in chosen_engines():
            point_to_the_testbed()
            sdk = await stack.enter_async_context(dagger_sdk())
        for size in SIZES[:1] if quick() else SIZES:
            text = document(size)
            contest = Contest("JSON in, transform, 1/50 of it out", size)
            contest.floor("host: python3", partial(_host, folder, text))
            for engine in chosen_engines():
                base, goal = (BY_HAND, "1.3x") if engine == "dagger" else ("host: python3", "")
                contest.ours(f"holdfast, {engine}", partial(_ours, engine, text), base, goal)
            for driver in sdk:
                await driver.ask("call", name="document", words={"rows": size // ROW, "filler": FILLER})
                contest.floor(BY_HAND, partial(driver.time, "call", name="transform", words={"code": TRANSFORM}))
            rows += await contest.in_turns(rounds, 25)
    return rows


async def _host(folder: Path, text: str) -> None:
    (folder / "in.json").write_text(text)
    subprocess.run([HOST_PYTHON, "main.py"], cwd=folder, check=True)
    assert (folder / "out.json").read_bytes()


async def _ours(engine: str, text: str) -> None:
    result = await aio.run(TRANSFORM, engine=engine, files={"in.json": text}, artifacts=["out.json"], limits=LIMITS)
    assert result.ok and result.artifacts[0].size_bytes > len(text) // 60, result


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=8, engines=("local", "docker", "dagger"), quick_rounds=2)

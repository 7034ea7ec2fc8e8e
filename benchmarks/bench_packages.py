"""What does a run with packages cost on Dagger when their layer is there already, and when it is not?

A hit is compared with a run without packages. A miss installs a version that was not asked for before, with pip, from
the machine's package index; once it is made, every later run of the same packages is a hit.
"""

from __future__ import annotations

import time
from functools import partial

from _machine import point_to_the_testbed
from _measure import Contest, Row, chosen_engine, main, progress, quick

from holdfast import aio

PACKAGE = "six"
HIT = ["six==1.16.0"]
CODE = "import six; print(six.__version__)"


async def measure(rounds: int) -> list[Row]:
    point_to_the_testbed()
    await _run(HIT)
    contest = Contest("run, layer is there")
    contest.floor("holdfast, no packages", partial(_run, []))
    contest.ours("holdfast, packages=['six']", partial(_run, HIT), "holdfast, no packages", "1.1x")
    return [*await contest.in_turns(rounds), await _miss()]


async def _miss() -> Row:
    """Each round asks in other words for the same package, which makes another layer."""
    progress("a layer that is not there")
    row = Row("holdfast, a new set of packages", "ms", case="run, layer has to be made")
    for _ in range(1 if quick() else 3):
        started = time.perf_counter()
        await _run([f"{PACKAGE}!=0.{time.time_ns()}"])
        row.samples.append((time.perf_counter() - started) * 1000)
    return row


async def _run(packages: list[str]) -> None:
    code = CODE if packages else "print(1)"
    result = await aio.run(code, engine=chosen_engine(), packages=packages)
    assert result.ok, result.stderr


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=30, engines=("dagger",), quick_rounds=5)

"""Shared by all benchmarks: things to compare are measured in turns, within one run, and reported side by side."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio
from _stats import interval, percentile

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # for `testbed`, however this was started

Work = Callable[[], Awaitable[object]]
"""Something to measure. It may give back `Took`, when only a part of it counts or somebody else has the watch."""
Who = Literal["ours", "floor", "peer"]
"""Ours; the physical limit, or the same by hand with the raw interface; what one would use instead."""


class Took(float):
    """Milliseconds."""


class NotHere(Exception):
    """A contender that cannot take part here, and why."""


@dataclass
class _Asked:
    """The command line of this process."""

    engines: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    quick: bool = False
    left_out: dict[str, str] = field(default_factory=dict[str, str])


_asked = _Asked()


def chosen_engine() -> str:
    """What was asked for with --engine, else the benchmark's usual one."""
    return _asked.engines[0]


def chosen_engines() -> tuple[str, ...]:
    """All that are to be measured side by side."""
    return _asked.engines


def chosen_peers() -> tuple[str, ...]:
    return _asked.peers


def quick() -> bool:
    return _asked.quick


def leave_out(name: str, reason: str) -> None:
    """Said with the result: a contender is never missing silently."""
    _asked.left_out[name] = " ".join(reason.split())[:300]


def progress(text: str) -> None:
    """On standard error; a terminal shows it in one line."""
    end = "\r" if sys.stderr.isatty() else "\n"
    sys.stderr.write(f"    {text:<90}"[:100].rstrip() + ("\x1b[K" if end == "\r" else "") + end)
    sys.stderr.flush()


@dataclass
class Row:
    """One thing that was measured."""

    name: str
    unit: str
    samples: list[float] = field(default_factory=list[float])
    baseline: str | None = None
    """the name of the row that it is compared with, of the same case"""
    goal: str = ""
    case: str = ""
    """what rows are compared with each other; a panel of the picture"""
    who: Who = "ours"
    at: float | None = None
    """the size, or how many at once, where the question is how the cost grows"""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def p95(self) -> float:
        return percentile(self.samples, 0.95)

    def compared(self, rows: Iterable[Row]) -> float | None:
        """Its median as a multiple of its baseline's."""
        for row in rows:
            if row.name == self.baseline and (row.case, row.at) == (self.case, self.at) and row.samples and row.median:
                return self.median / row.median
        return None


@dataclass
class Contest:
    """Contenders that do the same, in one case of a question."""

    case: str = ""
    at: float | None = None
    works: dict[str, Work] = field(default_factory=dict[str, Work])
    who: dict[str, Who] = field(default_factory=dict[str, Who])
    goals: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    warm_up: Collection[Who] = ("ours", "floor", "peer")
    """whose first runs do not count"""

    def ours(self, name: str, work: Work, baseline: str = "", goal: str = "") -> None:
        self._add(name, work, "ours")
        if baseline or goal:
            self.goals[name] = baseline, goal

    def floor(self, name: str, work: Work) -> None:
        self._add(name, work, "floor")

    def peer(self, name: str, work: Work) -> None:
        self._add(name, work, "peer")

    def _add(self, name: str, work: Work, who: Who) -> None:
        self.works[name], self.who[name] = work, who

    async def in_turns(self, rounds: int, seconds: float | None = None) -> list[Row]:
        """Milliseconds of each. Rounds end early when `seconds` are over, but there are three at least."""
        return self._marked(await in_turns(self.works, rounds, self.goals, seconds, self.title, self._cold()))

    def _cold(self) -> set[str]:
        return {name for name, who in self.who.items() if who not in self.warm_up}

    async def throughput(self, operations: int, rounds: int) -> list[Row]:
        return self._marked(await throughput(self.works, operations, rounds, self.goals))

    @property
    def title(self) -> str:
        return self.case if self.at is None else f"{self.case}, {self.at:g}"

    def _marked(self, rows: list[Row]) -> list[Row]:
        for row in rows:
            row.case, row.at, row.who = self.case, self.at, self.who[row.name]
        return [row for row in rows if row.samples]


async def in_turns(
    rows: dict[str, Work],
    rounds: int,
    goals: dict[str, tuple[str, str]] | None = None,
    seconds: float | None = None,
    title: str = "",
    cold: Collection[str] = (),
) -> list[Row]:
    """Milliseconds of each, round by round, so that noise hits all of them alike. Goals: name -> baseline, goal."""
    out = rows_with_goals(rows, "ms", goals)
    working = dict(rows)
    for name in (name for name in rows if name not in cold):
        for _ in range(1 if quick() else 3):
            took = await _timed(name, working)
            if took is None or took > 200:
                break
    end = time.monotonic() + (seconds or (6 if quick() else 25))
    for number in range(rounds):
        if number >= (2 if quick() else 3) and time.monotonic() > end:
            break
        for name in list(working):
            took = await _timed(name, working)
            if took is not None:
                out[name].samples.append(took)
        if number % max(1, rounds // 10) == 0 and (number == 0 or sys.stderr.isatty()):
            progress(f"{title}: round {number + 1} of {rounds}")
    return list(out.values())


async def _timed(name: str, working: dict[str, Work]) -> float | None:
    if name not in working:
        return None
    started = time.perf_counter()
    try:
        answer = await working[name]()
    except NotHere as error:
        leave_out(name, str(error))
        del working[name]
        return None
    return answer if isinstance(answer, Took) else (time.perf_counter() - started) * 1000


async def throughput(
    rows: dict[str, Work], operations: int, rounds: int, goals: dict[str, tuple[str, str]] | None = None
) -> list[Row]:
    """Operations for each second, where each work does so many of them."""
    out = rows_with_goals(rows, "op/s", goals)
    working = dict(rows)
    for _ in range(rounds):
        for name in list(working):
            took = await _timed(name, working)
            if took is not None:
                out[name].samples.append(operations * 1000 / took)
    return list(out.values())


def rows_with_goals(names: Iterable[str], unit: str, goals: Mapping[str, tuple[str, str]] | None) -> dict[str, Row]:
    out = {name: Row(name, unit) for name in names}
    for name, (baseline, goal) in (goals or {}).items():
        if name in out:
            out[name].baseline, out[name].goal = baseline or None, goal
    return out


def grouped(rows: list[Row]) -> list[Row]:
    """Case by case, each in the order in which it first came."""
    order: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        if row.samples:
            order.setdefault((row.case, row.at), []).append(row)
    cases = list(dict.fromkeys(case for case, _ in order))
    return [row for case in cases for key, found in order.items() if key[0] == case for row in found]


def as_json(question: str, rows: list[Row]) -> dict[str, object]:
    """What the harness reads: `Answer` in _report.py."""
    found: list[dict[str, object]] = []
    for row in rows:
        bounds = interval(row.samples)
        found.append(
            {
                "name": row.name,
                "case": row.case,
                "at": row.at,
                "who": row.who,
                "unit": row.unit,
                "samples": [float(f"{sample:.5g}") for sample in row.samples],
                "median": row.median,
                "p95": row.p95,
                "low": bounds.low,
                "high": bounds.high,
                "confidence": bounds.confidence,
                "baseline": row.baseline,
                "ratio": row.compared(rows),
                "goal": row.goal,
                "note": row.note,
            }
        )
    return {"question": question, "engines": list(_asked.engines), "left_out": _asked.left_out, "rows": found}


def _table(question: str, rows: list[Row]) -> None:
    print(f"{question}   (load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")
    shown = None
    for row in rows:
        if (row.case, row.at) != shown and row.case:
            print(f"  {row.case}" + ("" if row.at is None else f", {row.at:g}"))
        shown = row.case, row.at
        times = row.compared(rows)
        ratio = "" if times is None else f"{times:5.2f}x {row.baseline}"
        goal = f"goal {row.goal}" if row.goal else ""
        print(f"  {row.name:<38} {row.median:10.2f} {row.unit:<5} p95 {row.p95:10.2f}  {ratio:<34} {goal} {row.note}")
    for name, reason in _asked.left_out.items():
        print(f"  without {name}: {reason}")


def main(
    question: str,
    measure: Callable[[int], Awaitable[list[Row]]],
    rounds: int,
    engines: tuple[str, ...] = (),
    quick_rounds: int | None = None,
) -> None:
    """The command line of a benchmark. `engines`: those that it can measure, the usual one first."""
    parser = argparse.ArgumentParser(description=question)
    if engines:
        parser.add_argument("--engine", help="comma-separated, of: " + ", ".join(engines))
    parser.add_argument("--peers", default="", help="comma-separated names, or `all`")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="few rounds, small sizes")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    options = parser.parse_args()
    from _peers import NAMES

    wanted = tuple((options.engine or engines[0]).split(",")) if engines else ()
    if unknown := set(wanted) - set(engines):
        parser.error(f"it cannot measure {', '.join(unknown)}")
    _asked.engines, _asked.quick = wanted, options.quick
    _asked.peers = NAMES if options.peers == "all" else tuple(filter(None, options.peers.split(",")))
    few = quick_rounds or max(3, rounds // 8)
    rows = grouped(anyio.run(measure, options.rounds or (few if options.quick else rounds)))
    if options.json:
        json.dump(as_json(question, rows), sys.stdout)
        print()
    else:
        _table(question + (f" (on {', '.join(wanted)})" if wanted else ""), rows)

"""Shared by all benchmarks: things to compare are measured in turns, within one run, and printed side by side."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import anyio

Work = Callable[[], Awaitable[object]]
_chosen: dict[str, str] = {}


def chosen_engine() -> str:
    """What was asked for with --engine."""
    return _chosen["engine"]


@dataclass
class Row:
    """One thing that was measured."""

    name: str
    unit: str
    samples: list[float] = field(default_factory=list[float])
    baseline: str | None = None
    goal: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def p95(self) -> float:
        return sorted(self.samples)[int(len(self.samples) * 0.95)]


async def in_turns(rows: dict[str, Work], rounds: int, goals: dict[str, tuple[str, str]] | None = None) -> list[Row]:
    """Milliseconds of each, round by round, so that noise hits all of them alike. Goals: name -> baseline, goal."""
    out = rows_with_goals(rows, "ms", goals)
    for work in rows.values():
        for _ in range(3):
            await work()
    for _ in range(rounds):
        for name, work in rows.items():
            started = time.perf_counter()
            await work()
            out[name].samples.append((time.perf_counter() - started) * 1000)
    return list(out.values())


async def throughput(
    rows: dict[str, Work], operations: int, rounds: int, goals: dict[str, tuple[str, str]] | None = None
) -> list[Row]:
    """Operations for each second, where each work does so many of them."""
    out = rows_with_goals(rows, "op/s", goals)
    for _ in range(rounds):
        for name, work in rows.items():
            started = time.perf_counter()
            await work()
            out[name].samples.append(operations / (time.perf_counter() - started))
    return list(out.values())


def rows_with_goals(names: Iterable[str], unit: str, goals: dict[str, tuple[str, str]] | None) -> dict[str, Row]:
    out = {name: Row(name, unit) for name in names}
    for name, (baseline, goal) in (goals or {}).items():
        out[name].baseline, out[name].goal = baseline, goal
    return out


def main(
    question: str, measure: Callable[[int], Awaitable[list[Row]]], rounds: int, engines: tuple[str, ...] = ()
) -> None:
    """The command line of a benchmark. `engines`: those that it can measure, the usual one first."""
    parser = argparse.ArgumentParser(description=question)
    if engines:
        parser.add_argument("--engine", choices=engines, default=engines[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    options = parser.parse_args()
    if engines:
        _chosen["engine"] = options.engine
        question += f" (on {options.engine})"
    rows = anyio.run(measure, options.rounds)
    medians = {row.name: row.median for row in rows}
    if options.json:
        found = [
            {"name": row.name, "unit": row.unit, "median": row.median, "p95": row.p95, "goal": row.goal}
            | ({"ratio": row.median / medians[row.baseline]} if row.baseline else {})
            for row in rows
        ]
        json.dump({"question": question, "load": os.getloadavg()[0], "rows": found}, sys.stdout, indent=2)
        print()
        return
    print(f"{question}   (load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")
    for row in rows:
        ratio = f"{row.median / medians[row.baseline]:5.2f}x {row.baseline}" if row.baseline else ""
        goal = f"goal {row.goal}" if row.goal else ""
        print(f"  {row.name:<34} {row.median:9.2f} {row.unit:<5} p95 {row.p95:9.2f}  {ratio:<32} {goal}")

"""Runs the questions one after another, each in a process of its own, and makes one report of them."""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import _machine
import _peers
import _trend
from _measure import ROOT
from _page import write_pages
from _report import Answer, Measured, Report

from holdfast.guest.binary import guest_path

FOLDER = Path(__file__).parent
BUSY = 0.5
ORDER = (
    "exec",
    "open",
    "run",
    "files",
    "concurrency",
    "sessions",
    "flood",
    "kill",
    "dagger",
    "packages",
    "transform",
    "cpu",
    "import",
)
PATIENCE = 420.0
"""seconds for one question; the whole should take less than 20 minutes"""


def questions() -> tuple[str, ...]:
    """All that are there, the ones in `ORDER` first."""
    found = {path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py")}
    return (*(name for name in ORDER if name in found), *sorted(found - set(ORDER)))


def engines_of(question: str) -> tuple[str, ...]:
    """What the file says to `main` it can measure; read, not imported."""
    for node in ast.walk(ast.parse((FOLDER / f"bench_{question}.py").read_text())):
        if isinstance(node, ast.keyword) and node.arg == "engines":
            found: tuple[str, ...] = ast.literal_eval(node.value)
            return found
    return ()


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.schema:
        print(json.dumps(Report.model_json_schema(), indent=2))
        return 0
    if options.trend:
        print(_trend.trend([_read(path) for path in options.trend]))
        return 0
    wanted = tuple(options.questions) or questions()
    if unknown := [name for name in wanted if name not in questions()]:
        parser.error(f"there is no question {', '.join(unknown)}; there are: {', '.join(questions())}")
    report = _read(options.again) if options.again else _run(options, wanted)
    if options.write:
        write_pages(report, options.write)
    if options.baseline:
        print(_trend.compared(_read(options.baseline), report), file=sys.stderr)
    if options.json:
        print(report.model_dump_json())
    return 1 if any(answer.error for answer in report.answers) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="ours, the peers and the floors, in one run"
    )
    parser.add_argument(
        "questions", nargs="*", metavar="QUESTION", help=f"of: {', '.join(questions())}; all if left out"
    )
    parser.add_argument("--engine", help="comma-separated; else all that work here")
    parser.add_argument("--peers", default="all", help=f"comma-separated, of: {', '.join(_peers.NAMES)}; all, or none")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and small sizes: three minutes, for a first look"
    )
    parser.add_argument("--json", action="store_true", help="the report on standard output; --schema has its shape")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="an earlier report: shows what moved beyond the noise"
    )
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="data.json, README.md and pictures go there")
    parser.add_argument("--again", type=Path, metavar="FILE", help="measure nothing, take this report")
    parser.add_argument("--trend", nargs="+", type=Path, metavar="FILE", help="only: several reports as one table")
    parser.add_argument("--schema", action="store_true", help="only: the JSON Schema of a report")
    return parser


def _read(path: Path) -> Report:
    return Report.model_validate_json(path.read_text())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(options: argparse.Namespace, wanted: tuple[str, ...]) -> Report:
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    _machine.point_to_the_testbed()
    there, missing = _machine.engines()
    if options.engine:
        there = {name: there[name] for name in options.engine.split(",") if name in there}
    names = {"all": _peers.NAMES, "none": ()}.get(options.peers, tuple(options.peers.split(",")))
    peers = _peers.prepare(tuple(name for name in names if name in _peers.NAMES)) if "docker" in there else {}
    able = [name for name, version in peers.items() if not version.startswith("not here")]
    guest_path()  # builds it now if it must be, and not in the middle of a measurement
    machine = _machine.describe(there)
    say(f"{machine.cpu}, {machine.cores} cores, load {machine.load_before}; engines: {', '.join(there) or 'none'}")
    for name, reason in {**missing, **{n: v for n, v in peers.items() if n not in able}}.items():
        say(f"  without {name}: {reason}")
    if machine.load_before > BUSY:
        say("  the machine is busy: what is measured now is noise")
    answers: list[Answer] = []
    for number, name in enumerate(wanted, 1):
        say(f"[{number}/{len(wanted)}] {name}")
        answer = _ask(name, tuple(there), tuple(able), options.quick)
        answers.append(answer)
        for line in _summary(answer):
            say(f"    {line}")
    return Report(
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        command="python -m benchmarks " + " ".join(sys.argv[1:]),
        quick=options.quick,
        commit=_machine.commit(),
        machine=machine,
        peers=peers,
        answers=answers,
    )


def _ask(name: str, there: tuple[str, ...], peers: tuple[str, ...], quick: bool) -> Answer:
    able = engines_of(name)
    engines = [engine for engine in there if engine in able]
    shown = f"python benchmarks/bench_{name}.py" + (f" --engine {','.join(engines)}" if engines else "")
    shown += f" --peers {','.join(peers)}" if peers else ""
    answer = Answer(name=name, question="", command=shown, engines=engines, seconds=0, left_out={}, rows=[])
    tree = ast.parse((FOLDER / f"bench_{name}.py").read_text())
    answer.question = (ast.get_docstring(tree) or name).splitlines()[0]
    if able and not engines:
        answer.error = f"it needs one of {', '.join(able)}"
        return answer
    command = [sys.executable, *shown.split()[1:], "--json", *(["--quick"] if quick else [])]
    clock = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=PATIENCE, check=True, env=os.environ)
        found = json.loads(done.stdout)
        answer.rows = [Measured.model_validate(row) for row in found["rows"]]
        answer.left_out = found["left_out"]
    except subprocess.TimeoutExpired:
        answer.error = f"it took more than {PATIENCE:g} s"
    except subprocess.CalledProcessError as error:
        answer.error = f"it ended with status {error.returncode}; why is in what it printed above"
    except ValueError as error:
        answer.error = f"what it printed is no answer: {error}"[:300]
    answer.seconds = round(time.monotonic() - clock, 1)
    return answer


def _summary(answer: Answer) -> list[str]:
    """The best of ours, for whoever watches."""
    if answer.error:
        return [f"✘ {answer.error}"]
    lines = [f"{answer.seconds:.0f} s, {len(answer.rows)} rows"]
    for row in answer.rows:
        if row.who == "ours" and row.ratio is not None:
            at = "" if row.at is None else f", {row.at:g}"
            goal = f" (goal {row.goal})" if row.goal else ""
            lines.append(
                f"{row.case}{at}: {row.name} {row.median:.4g} {row.unit}, {row.ratio:.2f}x {row.baseline}{goal}"
            )
    return lines[:8]

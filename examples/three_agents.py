"""A workflow of three agents in three processes that share one session: one writes, one tests, one fixes.

    python examples/three_agents.py           on Docker if there is one, else on what this machine has

What an agent would decide is written down here; what it does, it really does. Each process finds the session by the
name of the workflow, sees the files of the others, and reads a program that another one has started and left behind.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time

from first_run import block, fact, heading, verdict

import holdfast
from holdfast import Process, SandboxError, Session, errors

PROGRAM = """\
def median(numbers):
    return sorted(numbers)[len(numbers) // 2]
"""
FIXED = """\
def median(numbers):
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
"""
TESTS = """\
from median import median
assert median([3, 1, 2]) == 2, "the middle one of three"
assert median([4, 1, 3, 2]) == 2.5, "between the two in the middle of four"
"""
# Runs the tests whenever the program changes. It outlives the process that started it.
WATCHER = """\
import os, subprocess, sys, time
seen = None
while True:
    if (now := os.stat("median.py").st_mtime_ns) != seen:
        seen = now
        done = subprocess.run([sys.executable, "tests.py"], capture_output=True, text=True)
        print("passed" if done.returncode == 0 else "failed: " + done.stderr.strip().splitlines()[-1], flush=True)
    time.sleep(0.02)
"""


def joined(box: Session, role: str) -> None:
    effective = box.effective
    fact(role, f"process {os.getpid()}, session {'made' if box.created else 'found'} on {effective.engine}")


def next_line(process: Process, since: int) -> tuple[str, int]:
    """The next line that a program writes, and the position behind it."""
    text = ""
    while not text.endswith("\n"):
        read = process.read(since, wait=10)
        text, since = text + read.stdout.decode(), read.next
    return text.strip(), since


def writer(box: Session) -> bool:
    box.write("median.py", PROGRAM)
    box.write("tests.py", TESTS)
    box.write("watcher.py", WATCHER)
    watcher = box.start("python3 watcher.py", timeout=300)
    box.write("watcher.json", json.dumps({"id": watcher.id}))
    block(PROGRAM, "┆")
    verdict(True, f"wrote median.py and its tests, started a watcher ({watcher.id}), and ends")
    return True


def tester(box: Session) -> bool:
    watcher = box.process(json.loads(box.read("watcher.json"))["id"])
    said, since = next_line(watcher, 0)
    box.write("watcher.json", json.dumps({"id": watcher.id, "since": since}))
    box.write("report.txt", said)
    verdict(False, f"the watcher says: {said}")
    return said.startswith("failed")


def fixer(box: Session) -> bool:
    fact("report", box.read_text("report.txt"))
    box.write("median.py", FIXED)
    block(FIXED, "┆")
    known = json.loads(box.read("watcher.json"))
    said, _ = next_line(box.process(known["id"]), known["since"])
    verdict(said == "passed", f"the watcher says: {said}")
    result = box.exec(["python3", "-c", "from median import median; print(median([4, 1, 3, 2]))"], timeout=10)
    verdict(result.ok, f"median([4, 1, 3, 2])  →  {result.stdout.strip()}   ({result.duration_ms:.0f} ms)")
    return said == "passed" and result.stdout == "2.5\n"


AGENTS = {"writer": writer, "tester": tester, "fixer": fixer}


def agent(role: str, workflow: str, engine: str) -> int:
    """One process of the workflow."""
    with holdfast.open_session(workflow=workflow, engine=engine) as box:
        joined(box, role)
        return 0 if AGENTS[role](box) else 1


def best_engine() -> str:
    """Docker if it works here, else whatever does."""
    try:
        with holdfast.open_session(engine="docker"):
            return "docker"
    except errors.EngineError:
        return "auto"


def main() -> int:
    engine = os.environ.get("HOLDFAST_ENGINE") or best_engine()
    workflow = f"three-agents-{secrets.token_hex(4)}"
    good, started = True, time.perf_counter()
    heading("A workflow: three agents, three processes, one session")
    try:
        for role in AGENTS:
            print(flush=True)
            done = subprocess.run([sys.executable, __file__, role, workflow, engine], check=False, timeout=100)
            good = good and done.returncode == 0
    finally:
        ended = holdfast.end_workflow(workflow)
    print()
    verdict(good and ended == 1, f"{ended} session ended after {time.perf_counter() - started:.1f} s; nothing is left")
    return 0 if good and ended == 1 else 1


if __name__ == "__main__":
    try:
        raise SystemExit(agent(*sys.argv[1:]) if len(sys.argv) == 4 else main())
    except SandboxError as error:
        print(f"✘ {error}", file=sys.stderr)
        raise SystemExit(125) from None

"""How long does an import take, beyond an empty Python, and how much memory does it hold?"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from _measure import Contest, Row, Who, chosen_peers, main
from _peers import python

PEERS = {
    "docker-py": "import docker",
    "SWE-ReX": "import swerex.deployment.docker",
    "llm-sandbox": "import llm_sandbox",
    "AutoGen": "import autogen_ext.code_executors.docker",
    "inspect_ai": "import inspect_ai",
    "smolagents": "import smolagents.remote_executors",
}
MEMORY = "\nprint(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"


async def run(interpreter: str, code: str) -> None:
    subprocess.run([interpreter, "-W", "ignore", "-c", code], check=True)  # blocking is what is measured


async def measure(rounds: int) -> list[Row]:
    theirs = str(python())
    contenders: dict[str, tuple[Who, str, str]] = {
        "import holdfast": ("ours", sys.executable, "import holdfast"),
        "import holdfast.aio": ("ours", sys.executable, "import holdfast.aio"),
    }
    for name in chosen_peers():
        contenders[name] = "peer", theirs, PEERS[name]
    contest = Contest("import")
    empty = {sys.executable: "empty python3", theirs: "empty python3 of the peers"}
    for interpreter, name in empty.items():
        if Path(interpreter).exists():
            contest.floor(name, partial(run, interpreter, "pass"))
    for name, (who, interpreter, code) in contenders.items():
        (contest.ours if who == "ours" else contest.peer)(name, partial(run, interpreter, code))
    rows = {row.name: row for row in await contest.in_turns(rounds, 40)}
    out: list[Row] = []
    for name, (who, interpreter, code) in contenders.items():
        base = rows[empty[interpreter]].median
        beyond = [max(0.0, sample - base) for sample in rows[name].samples]
        out.append(
            Row(name, "ms", beyond, case="time beyond an empty Python", who=who, goal="60 ms" if who == "ours" else "")
        )
        peak = subprocess.run([interpreter, "-W", "ignore", "-c", code + MEMORY], check=True, capture_output=True)
        out.append(Row(name, "MB", [int(peak.stdout) / 1024], case="memory of the process", who=who))
    return out


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=20, quick_rounds=2)

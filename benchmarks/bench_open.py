"""What does it cost to open a session, and to find one that is there from a new process?"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from typing import Any

from _measure import Row, Work, chosen_engine, in_turns, main, rows_with_goals

from holdfast import aio

PRINT = ["python3", "-c", "print(1)"]
ATTACH = """
import sys, holdfast
with holdfast.open_session(workflow=sys.argv[1], engine=sys.argv[2], create=False) as box:
    assert box.exec(["true"]).ok
"""


async def measure(rounds: int) -> list[Row]:
    return [*await _open(rounds), *await _attach(rounds)]


async def _open(rounds: int) -> list[Row]:
    """Until the first `print(1)`; how it is removed is not part of it."""
    docker = _Docker() if chosen_engine() == "docker" else None
    goals = {"open to print(1)": ("docker-py: create, start, exec", "1.0x")} if docker else None
    names = [*(["docker-py: create, start, exec"] if docker else []), "open to print(1)"]
    rows = rows_with_goals(names, "ms", goals)
    for number in range(rounds + 2):
        kept = number >= 2  # the first ones load what is loaded once
        if docker:
            started = time.perf_counter()
            container = docker.create()
            if kept:
                rows["docker-py: create, start, exec"].samples.append((time.perf_counter() - started) * 1000)
            container.remove(force=True, v=True)
        started = time.perf_counter()
        async with aio.open_session(engine=chosen_engine()) as box:
            assert (await box.exec(PRINT)).stdout == "1\n"
            if kept:
                rows["open to print(1)"].samples.append((time.perf_counter() - started) * 1000)
    return list(rows.values())


async def _attach(rounds: int) -> list[Row]:
    workflow = secrets.token_hex(8)
    async with aio.open_session(engine=chosen_engine(), workflow=workflow) as box:

        async def process(*argv: str) -> None:
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

        async def again() -> None:
            async with aio.open_session(engine=chosen_engine(), workflow=workflow, create=False) as found:
                await found.exec(["true"])

        words = [workflow, chosen_engine()]
        works: dict[str, Work] = {
            "python -c pass": lambda: process(sys.executable, "-c", "pass"),
            "new process: attach and exec true": lambda: process(sys.executable, "-c", ATTACH, *words),
            "same process: attach and exec true": again,
        }
        goals: dict[str, tuple[str, str]] = {}
        if chosen_engine() == "docker":
            works = {"docker exec true": lambda: process("docker", "exec", box.key.sandbox_name, "true"), **works}
            goals = {
                "new process: attach and exec true": ("docker exec true", "1.3x"),
                "same process: attach and exec true": ("docker exec true", ""),
            }
        try:
            return await in_turns(works, rounds, goals)
        finally:
            await box.close()


class _Docker:
    def __init__(self) -> None:
        import docker

        self._client: Any = docker.from_env()

    def create(self) -> Any:
        container = self._client.containers.create("python:3.11-slim", ["sleep", "300"], network_mode="none")
        container.start()
        assert container.exec_run(PRINT).output == b"1\n"
        return container


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=20, engines=("docker", "local"))

"""What does a one-shot run cost, compared with bubblewrap or a container alone and with no sandbox?"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from _measure import Row, Work, chosen_engine, in_turns, main
from bench_exec import ENVIRONMENT

from holdfast import aio

PYTHON = f"{sys.base_prefix}/bin/python3"
BUBBLEWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]
BUBBLEWRAP += ["--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]
BUBBLEWRAP += ["--ro-bind", sys.base_prefix, sys.base_prefix, "--", PYTHON, "-c", "pass"]


async def blocking(command: list[str]) -> None:
    subprocess.run(command, env=ENVIRONMENT, check=True)  # blocking is what is measured


async def container(client: Any) -> None:
    client.containers.run("python:3.11-slim", ["python3", "-c", "pass"], remove=True, network_mode="none")


async def measure(rounds: int) -> list[Row]:
    works: dict[str, Work] = {"host: python3 -c pass": lambda: blocking([PYTHON, "-c", "pass"])}
    if chosen_engine() == "docker":
        import docker

        client: Any = docker.from_env()
        alone, goal = "docker-py: run, remove", ""
        works[alone] = lambda: container(client)
    else:
        alone, goal = "bwrap python3 -c pass", "1.5x"
        works[alone] = lambda: blocking(BUBBLEWRAP)
    works["holdfast.run('pass')"] = lambda: aio.run("pass", engine=chosen_engine())
    return await in_turns(works, rounds, {"holdfast.run('pass')": (alone, goal)})


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=30, engines=("local", "docker"))

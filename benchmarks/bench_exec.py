"""What does an exec in an open session cost, compared with starting the same program on the host?

On Docker the same program means the image's: the host starts it by chroot into the container's root. What chroot itself
costs is measured too, as `host: chroot true`, and counts for the baseline.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from _measure import Row, Work, chosen_engine, in_turns, main, throughput

from holdfast import aio

# What the sandbox's programs have, so that both sides start the same thing.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
CONCURRENT, EACH = 8, 12
TRUE = ["/usr/bin/true"]


async def host(argv: list[str]) -> None:
    subprocess.run(argv, env=ENVIRONMENT, check=True)  # blocking is what is measured


async def together(work: Work) -> None:
    """So many at once, each again and again."""

    async def repeat() -> None:
        for _ in range(EACH):
            await work()

    async with anyio.create_task_group() as tasks:
        for _ in range(CONCURRENT):
            tasks.start_soon(repeat)


async def in_thread(argv: list[str]) -> None:
    await anyio.to_thread.run_sync(partial(subprocess.run, argv, env=ENVIRONMENT, check=True))


async def measure(rounds: int) -> list[Row]:
    async with aio.open_session(engine=chosen_engine()) as box:
        docker = _Docker(box) if chosen_engine() == "docker" else None
        python = ["/usr/bin/python3" if docker else f"{sys.base_prefix}/bin/python3", "-c", "pass"]
        same = [*(docker.chroot if docker else []), *python]
        works: dict[str, Work] = {"host: true": lambda: host(TRUE), "exec: true": lambda: box.exec(TRUE)}
        goals = {"exec: true": ("host: true", "1.5x"), "exec: python3 -c pass": ("host: python3 -c pass", "1.2x")}
        if docker:
            works["docker-py: exec true"] = docker.exec_true
            works["host: chroot true"] = lambda: host([*docker.chroot, *TRUE])
            goals["docker-py: exec true"] = ("exec: true", "at least 25x")
        works["host: python3 -c pass"] = lambda: host(same)
        works["exec: python3 -c pass"] = lambda: box.exec(python)
        rows = await in_turns(works, rounds, goals)
        many: dict[str, Work] = {
            "host: 8 concurrent python3": lambda: together(lambda: in_thread(same)),
            "exec: 8 concurrent python3": lambda: together(lambda: box.exec(python)),
            "exec: 8 concurrent true": lambda: together(lambda: box.exec(TRUE)),
        }
        goal = {"exec: 8 concurrent python3": ("host: 8 concurrent python3", "at least 0.9x")}
        return [*rows, *await throughput(many, CONCURRENT * EACH, max(3, rounds // 20), goal)]


class _Docker:
    """The same container by other ways."""

    def __init__(self, box: aio.Session) -> None:
        import docker

        self._client: Any = docker.from_env()
        self._container = self._client.containers.get(box.key.sandbox_name)
        self.chroot = ["/usr/sbin/chroot", f"/proc/{self._container.attrs['State']['Pid']}/root"]

    async def exec_true(self) -> None:
        assert self._container.exec_run(TRUE).exit_code == 0


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=100, engines=("local", "docker"))

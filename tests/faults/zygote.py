"""Clients that are killed: forks of one process that has Holdfast loaded, each ended by SIGKILL at a random moment.

    python -m tests.faults.zygote COUNT SEED

Prints, as JSON, how far each had come: nothing, opening, open, exec.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import sys
import time
from dataclasses import dataclass

import anyio

from holdfast import aio
from holdfast.engines import engine

AT_ONCE = 8
LIFETIME, IDLE = 30.0, 10.0


@dataclass
class Client:
    pid: int
    progress: int
    """the reading end of a pipe: one byte for each step"""
    doom: float


async def work(kind: int, steps: int) -> None:
    def reached() -> None:
        os.write(steps, b".")

    reached()
    if kind == 2:
        await aio.run("import time; time.sleep(300)", on_output=lambda *_: None)
        return
    workflow = None if kind else secrets.token_hex(8)
    async with aio.open_session(workflow=workflow, max_lifetime=LIFETIME, idle_timeout=IDLE) as session:
        reached()
        await session.write("file", "x")
        reached()
        await session.exec("setsid sleep 301 & sleep 302", timeout=290)


def start(kind: int, delay: float) -> Client:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            anyio.run(work, kind, writing)
        finally:
            os._exit(1)
    os.close(writing)
    return Client(pid, reading, time.monotonic() + delay)


def end(client: Client) -> int:
    os.kill(client.pid, signal.SIGKILL)
    os.waitpid(client.pid, 0)
    steps = len(os.read(client.progress, 16))
    os.close(client.progress)
    return steps


def typical() -> float:
    """Seconds until a client has its exec, with as many others as there will be."""
    begun = time.monotonic()
    clients = [start(1, 0) for _ in range(AT_ONCE)]
    for client in clients:
        seen = 0
        while seen < 3:
            seen += len(os.read(client.progress, 16)) or 3
    took = time.monotonic() - begun
    for client in clients:
        end(client)
    return took


def main(count: int, seed: int) -> None:
    engine("docker")  # imported before the first fork
    chance = random.Random(seed)
    longest = typical() * 1.5
    waiting = [(number % 3, chance.uniform(0, longest)) for number in range(count)]
    living: list[Client] = []
    steps: list[int] = []
    while waiting or living:
        while waiting and len(living) < AT_ONCE:
            living.append(start(*waiting.pop()))
        for client in [each for each in living if each.doom < time.monotonic()]:
            steps.append(end(client))
            living.remove(client)
        time.sleep(0.002)
    names = ("nothing", "opening", "open", "exec")
    print(json.dumps({name: sum(min(each, 3) == at for each in steps) for at, name in enumerate(names)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

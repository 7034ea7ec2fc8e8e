"""Whatever moment its client dies at, nothing of a session stays for more than 90 seconds after its time."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest

from holdfast import aio
from tests.faults.outside import containers, daemon
from tests.faults.zygote import LIFETIME

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(400), pytest.mark.on("docker")]

COUNT = 200 if os.environ.get("HOLDFAST_FULL_PROOF") == "1" else 40
PROMISE = 90.0


async def test_clients_killed_at_random_moments_leave_no_container_and_no_volume() -> None:
    seed = random.randrange(1 << 30)
    command = [sys.executable, "-m", "tests.faults.zygote", str(COUNT), str(seed)]
    volumes: set[str] = set()

    def left() -> list[str]:
        found = containers()
        volumes.update(mount["Name"] for each in found for mount in each["Mounts"] if mount["Type"] == "volume")
        there = {each["Name"] for each in daemon().volumes()["Volumes"] or []}
        return [*(f"{each['Name']} {each['State']['Status']}" for each in found), *(volumes & there)]

    async with await anyio.open_process(command, stdout=PIPE, stderr=None, cwd=Path(__file__).parents[2]) as zygote:
        most = 0
        while zygote.returncode is None:
            most = max(most, len(await anyio.to_thread.run_sync(left)))
            with anyio.move_on_after(0.1):
                await zygote.wait()
        assert zygote.stdout is not None
        reached = json.loads(await zygote.stdout.receive())
    print(f"seed {seed}: {reached}; {most} containers and volumes at once")
    assert min(reached["opening"], reached["exec"]) > 0, f"not all moments were tried: {reached}"
    assert most > 0 and volumes
    end = time.monotonic() + LIFETIME + PROMISE
    while still := await anyio.to_thread.run_sync(left):
        assert time.monotonic() < end, f"seed {seed}: still there: {still}"
        await aio.sweep()  # as any process may
        await anyio.sleep(2)

"""How much does the client's memory grow with a 200 MB flood of output and with a 1 GB file each way?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from _measure import Row, chosen_engine, main

from holdfast import Limits, aio


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


async def measure(rounds: int) -> list[Row]:
    limits = Limits(workspace_mb=2200, max_file_size_bytes=1100 << 20)
    rows = [Row(name, "MB", goal="20 MB") for name in ("200 MB of stdout", "1 GB upload", "1 GB download")]
    async with aio.open_session(engine=chosen_engine(), limits=limits) as box:
        await box.exec(["true"])
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            source, target = Path(folder, "in"), Path(folder, "out")
            os.truncate(os.open(source, os.O_CREAT | os.O_WRONLY), 1 << 30)
            works: list[Callable[[], Awaitable[object]]] = [
                lambda: box.exec("head -c 200000000 /dev/zero"),
                lambda: box.upload(source, "big"),
                lambda: box.download("big", target),
            ]
            for _ in range(rounds):
                for row, work in zip(rows, works, strict=True):
                    before = resident_mb()
                    reset_peak()
                    await work()
                    row.samples.append(peak_mb() - before)
    return rows


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=2, engines=("local", "docker"))

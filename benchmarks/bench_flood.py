"""What does a flood of 200 MB of output cost in time, and in memory of the client, the guest and the daemon?

Peaks over what each held before. The guest's is that of the process which reads the program's output; the daemon's is
dockerd's. A large file in and out is measured the same way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
from _machine import point_to_the_testbed
from _measure import NotHere, Row, Who, Work, chosen_engines, leave_out, main, progress, quick
from _peers import peers

from holdfast import Limits, aio

SIZE = 200_000_000
FLOOD = ["head", "-c", str(SIZE), "/dev/zero"]
PYTHON = f"import sys\nfor _ in range({SIZE // 1_000_000}): sys.stdout.buffer.write(b'x' * 1000000)"
FILE = 1 << 30
LIMITS = Limits(workspace_mb=2200, max_file_size_bytes=1100 << 20)


def memory_mb(key: str, process: int | str = "self") -> float:
    """VmRSS: what it holds; VmHWM: its peak since `reset_peak`."""
    try:
        return int(Path(f"/proc/{process}/status").read_text().split(f"{key}:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0


def resident_mb() -> float:
    return memory_mb("VmRSS")


def peak_mb() -> float:
    return memory_mb("VmHWM")


def reset_peak(process: int | str = "self") -> None:
    Path(f"/proc/{process}/clear_refs").write_text("5")


class _Watch:
    """Peaks of some processes while something runs."""

    def __init__(self, what: dict[str, int | str]) -> None:
        self.what = what
        self.before = {name: memory_mb("VmRSS", process) for name, process in what.items()}

    async def during(self, work: Work) -> tuple[float, dict[str, float]]:
        """Milliseconds, and megabytes of each over what it held at first."""
        for process in self.what.values():
            reset_peak(process)
        started = time.perf_counter()
        await work()
        took = (time.perf_counter() - started) * 1000
        return took, {n: max(0.0, memory_mb("VmHWM", process) - self.before[n]) for n, process in self.what.items()}


async def measure(rounds: int) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    patience = 4 if quick() else 15

    def add(case: str, name: str, unit: str, value: float, who: Who = "ours", goal: str = "") -> None:
        rows.setdefault((case, name), Row(name, unit, case=case, who=who, goal=goal)).samples.append(value)

    def told(name: str, took: float, grown: dict[str, float], who: Who = "ours") -> None:
        add("200 MB of stdout: time", name, "ms", took, who)
        for place, mb in grown.items():
            add(f"200 MB of stdout: memory of the {place}", name, "MB", mb, who, "20 MB" if who == "ours" else "")

    async with AsyncExitStack() as stack:
        watched = await _sessions(stack)
        found = await stack.enter_async_context(peers("exec"))
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for name, watch, work in watched:
                told(name, *await watch.during(work))
            for peer in list(found):
                try:
                    with anyio.fail_after(patience):
                        answer = await peer.ask("flood", argv=FLOOD)
                except (NotHere, TimeoutError) as error:
                    leave_out(peer.name, str(error) or f"200 MB of output take it more than {patience} s")
                    found.remove(peer)
                else:
                    told(peer.name, answer["ms"], {"client": answer["mb"]}, "peer")
    if not quick():
        await _files(min(rounds, 2), add)
    return list(rows.values())


async def _sessions(stack: AsyncExitStack) -> list[tuple[str, _Watch, Work]]:
    found: list[tuple[str, _Watch, Work]] = []
    for engine in chosen_engines():
        what: dict[str, int | str] = {"client": "self"}
        if engine == "dagger":
            point_to_the_testbed()
            await aio.run("pass", engine="dagger")  # what is loaded once is not the flood's
            work: Work = partial(aio.run, PYTHON, engine="dagger")
        else:
            box = await stack.enter_async_context(aio.open_session(engine=engine))
            work = partial(box.exec, FLOOD)
            if guest := await guest_of(box):
                what["guest"] = guest
            if engine == "docker" and (daemon := _pid_of("dockerd")):
                what["daemon"] = daemon
        found.append((f"holdfast, {engine}", _Watch(what), work))
    return found


async def guest_of(box: aio.Session) -> int | None:
    """The guest of a session, as the host sees it: the one that serves in the same PID namespace."""
    space = (await box.exec(["readlink", "/proc/self/ns/pid"])).stdout.strip()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().endswith(b"guest\0serve\0-\0") and str((entry.parent / "ns/pid").readlink()) == space:
                return int(entry.parent.name)
        except OSError:
            continue
    return None


def _pid_of(name: str) -> int | None:
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            if entry.read_text().strip() == name:
                return int(entry.parent.name)
        except OSError:
            continue
    return None


async def _files(rounds: int, add: Callable[..., None]) -> None:
    """1 GB each way, from a file and to a file, on the first engine that has sessions."""
    engine = next(name for name in chosen_engines() if name != "dagger")
    async with aio.open_session(engine=engine, limits=LIMITS) as box:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            source, target = Path(folder, "in"), Path(folder, "out")
            with source.open("wb") as file:
                file.truncate(FILE)
            for _ in range(rounds):
                for what, work in (
                    ("in", partial(box.upload, source, "big")),
                    ("out", partial(box.download, "big", target)),
                ):
                    progress(f"1 GB {what}")
                    _, grown = await _Watch({"client": "self"}).during(work)
                    add(
                        f"1 GB file {what}: memory of the client",
                        f"holdfast, {engine}",
                        "MB",
                        grown["client"],
                        "ours",
                        "20 MB",
                    )


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=3, engines=("local", "docker", "dagger"), quick_rounds=1)

"""What does a run on Dagger cost, compared with the same by hand through its SDK, and with a fresh Docker container?"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import docker
from _measure import Row, in_turns, main
from bench_memory import peak_mb, reset_peak, resident_mb

from holdfast import aio
from testbed import settings

IMAGE = "python:3.11-slim"
CODE = "print(6 * 7)"
TRANSFORM = """
import json
rows = json.load(open("in.json"))
json.dump([row for row in rows if row["n"] % 50 == 0], open("out.json", "w"))
"""
FLOOD = "import sys\nfor _ in range(200): sys.stdout.buffer.write(b'x' * 1000000)"
CONCURRENT, EACH = 8, 6


def point_to_the_testbed() -> None:
    found = settings.read()
    if found is None or "dagger" not in found:
        raise SystemExit("there is no Dagger engine here: call testbed/up dagger")
    os.environ["DAGGER_HOST"] = os.environ["_EXPERIMENTAL_DAGGER_RUNNER_HOST"] = found["dagger"]["hosts"]["unix"]
    os.environ["_EXPERIMENTAL_DAGGER_CLI_BIN"] = found["dagger"]["cli"]


async def ours(code: str = CODE, **options: object) -> None:
    result = await aio.run(code, engine="dagger", **options)  # type: ignore[arg-type]
    assert result.ok, result.stderr


async def measure(rounds: int) -> list[Row]:
    point_to_the_testbed()
    import dagger
    from dagger import dag

    daemon = docker.from_env()

    def fresh() -> dagger.Container:
        """A container whose exec the engine has not seen."""
        return dag.container().from_(IMAGE).with_env_variable("NONCE", secrets.token_hex(8))

    async def stdout_only() -> None:
        assert await fresh().with_exec(["python3", "-c", CODE]).stdout() == "42\n"

    async def four_queries() -> None:
        done = await fresh().with_exec(["python3", "-c", CODE]).sync()
        assert await done.stdout() == "42\n" and await done.stderr() == "" and await done.exit_code() == 0

    async def container() -> None:
        def run() -> None:
            made = daemon.containers.run(IMAGE, ["python3", "-c", CODE], detach=True, network_mode="none")
            made.wait()
            assert made.logs(stdout=True, stderr=False) == b"42\n"
            made.logs(stdout=False, stderr=True)
            made.remove(force=True)

        await anyio.to_thread.run_sync(run)

    packages = ["six==1.16.0"]
    async with dagger.connection():
        rows = await in_turns(
            {
                "SDK: with_exec, stdout": stdout_only,
                "SDK: sync, stdout, stderr, exit_code": four_queries,
                "Docker API: create to remove": container,
                "holdfast.run": ours,
                "holdfast.run, packages": lambda: ours(packages=packages),
            },
            rounds,
            {
                "holdfast.run": ("SDK: with_exec, stdout", "1.2x; under the four queries; half of Docker"),
                "holdfast.run, packages": ("holdfast.run", "1.1x"),
            },
        )
        with tempfile.TemporaryDirectory() as folder:
            rows += await _transform(Path(folder), max(3, rounds // 6))
        rows += await _throughput(
            {"SDK: 8 at once": stdout_only, "holdfast.run: 8 at once": ours}, {"holdfast.run: 8 at once": "0.95x"}
        )
    daemon.close()
    return rows + await _memory()


async def _transform(folder: Path, rounds: int) -> list[Row]:
    """The seeds' case: 50 MB of JSON in, a transform, 1 MB out."""
    from dagger import dag

    text = json.dumps([{"n": n, "text": "x" * 480} for n in range(100_000)])
    source, script = folder / "in.json", folder / "main.py"
    script.write_text(TRANSFORM)

    async def by_hand() -> None:
        path = folder / f"{secrets.token_hex(4)}.json"  # the engine remembers a path's content
        path.write_text(text)
        container = dag.container().from_(IMAGE).with_workdir("/work")
        container = container.with_file("/work/in.json", dag.host().file(str(path)))
        container = container.with_file("/work/main.py", dag.host().file(str(script)))
        done = container.with_env_variable("N", secrets.token_hex(4)).with_exec(["python3", "main.py"])
        await done.file("/work/out.json").export(str(folder / "out.json"))
        assert (folder / "out.json").stat().st_size > 900_000
        path.unlink()

    async def with_holdfast() -> None:
        result = await aio.run(TRANSFORM, engine="dagger", files={"in.json": text}, artifacts=["out.json"])
        assert result.artifacts[0].size_bytes > 900_000

    source.write_text(text)
    return await in_turns(
        {"SDK: 50 MB in, 1 MB out": by_hand, "holdfast.run: 50 MB in, 1 MB out": with_holdfast},
        rounds,
        {"holdfast.run: 50 MB in, 1 MB out": ("SDK: 50 MB in, 1 MB out", "1.3x")},
    )


async def _throughput(works: dict[str, Callable[[], Awaitable[object]]], goals: dict[str, str]) -> list[Row]:
    rows = {name: Row(name, "op/s", goal=goals.get(name, "")) for name in works}
    rows["holdfast.run: 8 at once"].baseline = "SDK: 8 at once"

    async def repeat(work: Callable[[], Awaitable[object]]) -> None:
        for _ in range(EACH):
            await work()

    for _ in range(3):
        for name, work in works.items():
            started = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(CONCURRENT):
                    tasks.start_soon(repeat, work)
            rows[name].samples.append(CONCURRENT * EACH / (time.perf_counter() - started))
    return list(rows.values())


async def _memory() -> list[Row]:
    flood, seconds = Row("200 MB flood: client's memory", "MB", goal="flat"), Row("200 MB flood", "ms", goal="1500 ms")
    many = Row("300 runs: client's memory", "MB", goal="flat")
    await ours(FLOOD)
    for _ in range(3):
        before = resident_mb()
        reset_peak()
        started = time.perf_counter()
        await ours(FLOOD)
        seconds.samples.append((time.perf_counter() - started) * 1000)
        flood.samples.append(peak_mb() - before)
    before = resident_mb()
    for _ in range(300):
        await ours()
    many.samples.append(resident_mb() - before)
    return [seconds, flood, many]


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=30)

"""One run: a fresh sandbox, files in, a program, artifacts out, nothing left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from holdfast import EndCause, Limits, RunResult, aio
from holdfast.abc import Capability, Engine

from .requires import requires

pytestmark = pytest.mark.anyio

Run = Callable[..., Awaitable[RunResult]]


@pytest.fixture
def run(engine: Engine, code: Callable[[str], str], mark: str) -> Run:
    """`aio.run` of a program of `programs.py` on the engine under test."""

    async def one(name: str, *args: object, **options: Any) -> RunResult:
        env = {"HF_MARK": mark, **options.pop("env", {})}
        words = [str(arg) for arg in args]
        return await aio.run(code(name), args=words, env=env, engine=engine.name, **options)

    return one


async def test_a_run_has_all_that_its_program_did(run: Run, engine: Engine) -> None:
    result = await run("say", "out", "err", 0)
    assert (result.ok, result.exit_code, result.stdout, result.stderr) == (True, 0, "out", "err")
    assert (result.engine, result.runtime, result.end_cause) == (engine.name, "python", EndCause.COMPLETED)
    assert (result.artifacts, result.truncated, result.signal) == ((), False, None)
    assert result.limits["timeout_seconds"] > 0


async def test_a_run_that_fails_is_a_result(run: Run) -> None:
    assert (await run("say", "", "", 3)).exit_code == 3
    died = await run("die", 11)
    assert (died.exit_code, died.signal, died.ok) == (None, 11, False)


@requires(Capability.REAL_PROCESSES)
async def test_code_that_is_wrong_is_a_result(engine: Engine) -> None:
    result = await aio.run("print(1", engine=engine.name)
    assert (result.exit_code, result.end_cause) == (1, EndCause.COMPLETED)
    assert "SyntaxError" in result.stderr


@requires(Capability.REAL_PROCESSES)
@pytest.mark.parametrize(
    ("runtime", "source"),
    [("python", "print(6 * 7)"), ("py", "print(42)"), ("bash", "echo $((6 * 7))"), ("node", "console.log(6 * 7)")],
)
async def test_each_runtime(engine: Engine, runtime: str, source: str) -> None:
    result = await aio.run(source, runtime=runtime, engine=engine.name)
    assert result.stdout == "42\n", result.stderr


async def test_it_runs_in_its_workspace(run: Run) -> None:
    assert (await run("where")).stdout == "/work"


async def test_arguments_environment_and_stdin_arrive(run: Run) -> None:
    odd = ["a b", "", "'", "-x", "ü\n"]
    assert (await run("show", *odd)).stdout == "\n".join(one.encode().hex() for one in odd)
    assert (await run("variable", "GIVEN", env={"GIVEN": "a b"})).stdout == "a b"
    assert (await run("cat", stdin="text\n")).stdout == "text\n"
    assert (await run("cat", stdin=b"\0\xff")).stdout_bytes == b"\0\xff"
    assert (await run("cat")).stdout == ""


async def test_files_are_there_and_come_back(run: Run) -> None:
    files = {"in.txt": "text", "deep/er/in.bin": bytes(range(256)), "new\nline": ""}
    result = await run("fill", "made.bin", 1, files=files, artifacts=["*.txt", "deep/**", "*.bin", "new*"])
    found = {artifact.path: artifact.content for artifact in result.artifacts}
    assert found == {
        "in.txt": b"text",
        "deep/er/in.bin": bytes(range(256)),
        "made.bin": bytes(1 << 20),
        "new\nline": b"",
    }
    assert [artifact.size_bytes for artifact in result.artifacts if artifact.path == "made.bin"] == [1 << 20]


async def test_artifacts_are_those_that_were_asked_for(run: Run) -> None:
    files = {"a.txt": "", "a.csv": "", "out/b.txt": "", "out/deep/c.txt": ""}

    async def found(*patterns: str) -> list[str]:
        result = await run("where", files=files, artifacts=patterns)
        assert result.artifacts_skipped == ()
        return [artifact.path for artifact in result.artifacts]

    assert await found() == []
    assert await found("*.txt") == ["a.txt"]
    assert await found("**/*.txt") == ["a.txt", "out/b.txt", "out/deep/c.txt"]
    assert await found("out") == ["out/b.txt", "out/deep/c.txt"]
    assert await found("out/*.txt", "./a.csv") == ["a.csv", "out/b.txt"]
    assert await found("missing/*") == []


async def test_artifacts_have_a_cap_that_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "1000")
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACTS_COUNT", "2")
    files = {"a": bytes(500), "b": bytes(600), "c": bytes(400), "d": b""}
    result = await run("where", files=files, artifacts=["?"])
    assert [artifact.path for artifact in result.artifacts] == ["a", "c"]
    assert [(one.path, one.size_bytes) for one in result.artifacts_skipped] == [("b", 600), ("d", 0)]
    assert (result.artifacts_skipped_count, result.artifacts_unlisted) == (2, False)


async def test_a_run_that_ends_badly_gives_its_artifacts_too(run: Run) -> None:
    result = await run("say", "", "", 1, files={"log": "so far"}, artifacts=["log"])
    assert [artifact.content for artifact in result.artifacts] == [b"so far"]
    late = await run("forever", timeout=2, files={"log": "so far"}, artifacts=["log"])
    assert late.end_cause is EndCause.TIMEOUT
    assert [artifact.content for artifact in late.artifacts] == [b"so far"]


async def test_a_timeout_keeps_what_was_written(run: Run) -> None:
    result = await run("forever", timeout=2)
    assert (result.end_cause, result.exit_code, result.stdout) == (EndCause.TIMEOUT, None, "ready\n")
    assert result.limits["timeout_seconds"] == 2


async def test_output_is_capped_and_live(run: Run) -> None:
    heard: list[bytes] = []
    result = await run("flood", 1_000, max_stdout_bytes=10_000, on_output=lambda stream, data: heard.append(data))
    assert (result.truncated, result.stdout_total_bytes, len(result.stdout_bytes)) == (True, 1_000_000, 10_000)
    assert heard


async def test_runs_share_nothing(run: Run) -> None:
    assert (await run("fill", "left.bin", 1)).ok
    after = await run("where", artifacts=["**"])
    assert [artifact.path for artifact in after.artifacts] == ["main.py"]


async def test_runs_at_once_do_not_mix(run: Run) -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        result = await run("cat", stdin=f"{number}", files={"same": f"{number}"}, artifacts=["same"])
        assert result.artifacts[0].content == f"{number}".encode()
        results[number] = result.stdout

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, number)
    assert results == {number: f"{number}" for number in range(6)}


async def test_a_run_is_not_a_session(run: Run, engine: Engine) -> None:
    async with anyio.create_task_group() as tasks:

        async def rest() -> None:
            assert (await run("rest", 0.5)).ok

        tasks.start_soon(rest)
        await anyio.sleep(0.2)
        assert await aio.list_sessions(engine.name) == []


async def test_the_limits_of_a_run_are_told(run: Run) -> None:
    result = await run("where", limits=Limits(workspace_mb=32, memory_mb=200))
    assert (result.limits["workspace_mb"], result.limits["memory_mb"]) == (32, 200)


async def test_the_result_of_a_tool_is_plain_data(run: Run) -> None:
    tool = (await run("every_byte", files={"a": b"\xff"}, artifacts=["a"])).as_tool()
    assert (tool["ok"], tool["encoding"], tool["artifacts"][0]["content_base64"]) == (True, "utf-8-lossy", "/w==")

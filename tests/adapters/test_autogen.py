"""AutoGen's CodeExecutor: alone, and in AutoGen's own agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from holdfast import aio, errors
from holdfast.config import Limits
from holdfast.tools.adapters.autogen import Executor, ExecutorConfig
from tests.conformance import host

from .runaways import RUNAWAYS, left_after_cancelling, running

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)


@pytest.fixture
async def executor(engine: str, mark: str) -> AsyncIterator[Executor]:
    async with Executor(ExecutorConfig(env={"HF_MARK": mark}, timeout=30)) as started:
        yield started


async def run(executor: CodeExecutor, *blocks: tuple[str, str]) -> CodeResult:
    return await executor.execute_code_blocks(
        [CodeBlock(code, language) for language, code in blocks], CancellationToken()
    )


async def test_blocks_run_one_after_the_other_until_one_fails(executor: Executor) -> None:
    blocks = [
        ("python", "# filename: tools.py\ndef half(x): return x / 2"),
        ("Python", "import tools\nprint(tools.half(84))\nopen('n', 'w').write('7')"),
        ("sh", "cat n; echo; echo oops >&2; exit 3"),
        ("sh", "echo never"),
    ]
    assert await run(executor, *blocks) == CodeResult(3, "42.0\n7\noops\n")
    assert await executor.session.read("n") == b"7"
    failed = await run(executor, ("python", "1 / 0"))
    assert failed.exit_code == 1
    assert "1 / 0" in failed.output and "ZeroDivisionError" in failed.output


@only_local
async def test_a_models_mistake_is_a_result(executor: Executor) -> None:
    unknown = await run(executor, ("cobol", "x"))
    assert (unknown.exit_code, "unknown language cobol" in unknown.output) == (1, True)
    outside = await run(executor, ("python", "# filename: ../../etc/x.py\n1"))
    assert (outside.exit_code, "outside the workspace" in outside.output) == (126, True)
    killed = await run(executor, ("bash", "echo begun; kill -9 $$"))
    assert (killed.exit_code, killed.output) == (137, "begun\n")
    much = await run(executor, ("python", "print('x' * 1_000_000)"))
    assert much.exit_code == 0
    assert "[...truncated at 200000 chars...]" in much.output and len(much.output) < 201_000


@only_local
async def test_what_is_not_the_models_mistake_is_an_error(engine: str, executor: Executor) -> None:
    with pytest.raises(ValueError, match="not started"):
        await run(Executor(), ("sh", "true"))
    with pytest.raises(errors.ImageNotAllowed):
        await Executor(ExecutorConfig(image="stranger:1", engine="docker")).start()
    await executor.session.close()
    with pytest.raises(errors.SessionClosed):
        await run(executor, ("sh", "true"))


async def test_code_that_is_late_or_cancelled_leaves_no_process(executor: Executor, mark: str) -> None:
    async with Executor(ExecutorConfig(env={"HF_MARK": mark}, timeout=1)) as hasty:
        late = await run(hasty, ("sh", f"echo begun; {RUNAWAYS}"), ("sh", "echo never"))
    assert (late.exit_code, late.output.splitlines()[0], "timeout" in late.output) == (124, "begun", True)
    assert "never" not in late.output
    assert await host.gone(mark) == []
    token, causes = CancellationToken(), list[type[BaseException]]()

    async def work() -> None:
        try:
            await executor.execute_code_blocks([CodeBlock(RUNAWAYS, "sh")], token)
        except BaseException as error:
            causes.append(type(error))
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await host.until(lambda: running(mark))
        token.cancel()
    assert causes == [anyio.get_cancelled_exc_class()]
    assert await host.gone(mark) == []
    assert await left_after_cancelling(lambda: run(executor, ("sh", RUNAWAYS)), mark) == []
    with pytest.raises(anyio.get_cancelled_exc_class()):
        await executor.execute_code_blocks([CodeBlock("echo", "sh")], token)
    assert await run(executor, ("sh", "echo still here")) == CodeResult(0, "still here\n")


@only_local
async def test_it_is_started_stopped_and_started_anew(engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    plain, kept = Executor(), Executor(ExecutorConfig(work_dir=str(folder)))
    for executor, remains in ((plain, 1), (kept, 0)):
        await executor.start()
        await executor.start()
        assert (await run(executor, ("sh", "mkdir out; echo made > out/file"))).exit_code == 0
        await executor.restart()
        assert (await run(executor, ("sh", "test -e out/file"))).exit_code == remains
        assert len(await aio.list_sessions(engine)) == 1
        await executor.stop()
        await executor.stop()
        assert await aio.list_sessions(engine) == []
    assert (folder / "out" / "file").read_text() == "made\n"


@only_local
async def test_it_is_dumped_and_loaded_as_a_component(engine: str) -> None:
    config = ExecutorConfig(runtime="bash", timeout=7, limits=Limits(memory_mb=128))
    dumped = Executor(config).dump_component()
    assert dumped.provider == "holdfast.tools.adapters.autogen.Executor"
    async with CodeExecutor.load_component(dumped.model_dump()) as loaded:
        assert isinstance(loaded, Executor)
        assert (loaded.session.effective.runtime, loaded.session.effective.limits["memory_mb"]) == ("bash", 128)
        assert loaded.dump_component() == dumped


def approve(_: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="it runs in a sandbox")


async def test_an_agent_of_autogen_runs_what_it_is_told(executor: Executor) -> None:
    agent = CodeExecutorAgent("runner", executor, approval_func=approve)
    said = (await agent.run(task="Try:\n```python\nprint(6 * 7)\n```\n")).messages[-1]
    assert said.to_text() == "42\n"
    said = (await agent.run(task="And:\n```sh\necho no >&2; exit 3\n```\n")).messages[-1]
    assert "exit code: 3" in said.to_text() and said.to_text().endswith("no\n")

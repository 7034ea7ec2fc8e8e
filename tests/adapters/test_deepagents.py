"""The deepagents backend: LangChain's own suite, and what that suite does not see."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyio
import anyio.to_thread
import pytest
from deepagents import create_deep_agent
from langchain_core.messages import ToolMessage

import holdfast
from holdfast import errors
from holdfast.tools.adapters.deepagents import Backend
from tests.conformance import host
from tests.testbed import require

from .runaways import RUNAWAYS, left_after_cancelling, running
from .scripted import Script, call, say

ROOT = Path(__file__).parents[2]
SUITE = Path(__file__).with_name("langchain_sandbox_suite.py")

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.fixture
def box(engine: str, mark: str) -> Iterator[holdfast.Session]:
    with holdfast.open_session(env={"HF_MARK": mark}) as opened:
        yield opened


@pytest.fixture
def backend(box: holdfast.Session) -> Backend:
    return Backend(box)


@pytest.mark.timeout(600)
def test_the_suite_of_langchain_passes(tmp_path: Path) -> None:
    require("images")
    report = tmp_path / "report.xml"
    environment = {
        **os.environ,
        "DOCKER_HOST": require("docker")["host"],
        "HOLDFAST_OWNER_KEY": secrets.token_hex(16),
        "HOLDFAST_PROFILE": "strict",
        "PYTEST_ADDOPTS": "",
    }
    words = ["-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", "--asyncio-mode=auto"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--junitxml={report}", str(SUITE)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    counted = ElementTree.parse(report).find("testsuite")
    assert counted is not None
    # "skipped" counts what was expected to fail too
    counts = {name: counted.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "86", "failures": "0", "errors": "0", "skipped": "0"}


async def test_a_command_whose_time_is_over_leaves_no_process(backend: Backend, mark: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.until, lambda: running(mark))
        late = await backend.aexecute(f"echo begun; {RUNAWAYS}", timeout=3)
    assert (late.exit_code, late.output.splitlines()[0]) == (124, "begun")
    assert "its time was over after 3 s" in late.output
    assert not await host.gone(mark)
    assert (await backend.aexecute("echo alive")).output == "alive\n"


async def test_a_blocking_command_whose_time_is_over_leaves_no_process(backend: Backend, mark: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.until, lambda: running(mark))
        late = await anyio.to_thread.run_sync(lambda: backend.execute(RUNAWAYS, timeout=3))
    assert late.exit_code == 124
    assert not await host.gone(mark)


async def test_a_cancelled_command_leaves_no_process(backend: Backend, mark: str) -> None:
    assert not await left_after_cancelling(lambda: backend.aexecute(RUNAWAYS), mark)
    assert (await backend.aexecute("echo alive")).output == "alive\n"


async def test_what_a_command_leaves_running_is_killed_and_named(backend: Backend, mark: str) -> None:
    left = await backend.aexecute("sleep 1000 & echo done")
    assert (left.exit_code, left.output) == (0, "done\n\n[left running, and killed: sleep]")
    assert not await host.gone(mark)


@pytest.mark.parametrize("engine", ["local"], indirect=True)
class TestWhatAModelSees:
    async def test_output_is_in_the_order_in_which_it_was_written(self, backend: Backend) -> None:
        both = await backend.aexecute("echo 1; echo 2 >&2; echo 3; (echo 4 >&2); ls /nowhere; exit 7")
        assert both.exit_code == 7
        assert both.output.startswith("1\n2\n3\n4\nls: ") and not both.truncated

    async def test_a_signal_is_told_as_a_shell_tells_it(self, backend: Backend) -> None:
        ended = await backend.aexecute("kill -9 $$")
        assert (ended.exit_code, '"it ended by ' in ended.output) == (137, True)

    async def test_output_beyond_the_bound_is_cut_where_everybody_can_see_it(self, box: holdfast.Session) -> None:
        small = Backend(box, max_output_bytes=1000)
        cut = await small.aexecute("seq 100000")
        assert cut.truncated and cut.output.startswith("1\n2\n") and cut.output.endswith("100000\n")
        assert "bytes of output are missing" in cut.output
        assert not (await small.aexecute("seq 100")).truncated

    async def test_a_listing_that_was_cut_is_an_error_and_no_short_listing(self, box: holdfast.Session) -> None:
        await anyio.to_thread.run_sync(lambda: box.exec("mkdir many && cd many && touch $(seq 100)"))
        small, large = Backend(box, max_output_bytes=1000), Backend(box)
        for listed in (await small.als("/workspace/many"), await small.aglob("*", "/workspace/many")):
            assert listed.error and "bytes of output are missing" in listed.error
        assert len((await large.als("/workspace/many")).entries or []) == 100
        assert len((await large.aglob("*", "/workspace/many")).matches or []) == 100

    async def test_matches_that_do_not_fit_are_an_error_and_no_short_list(self, box: holdfast.Session) -> None:
        small, large = Backend(box, max_output_bytes=1000), Backend(box)
        await large.aexecute("seq 1000 > numbers")
        cut = await small.agrep("1", "/workspace")
        assert cut.matches is None and "more than 1000 bytes" in str(cut.error)
        assert await anyio.to_thread.run_sync(small.grep, "1", "/workspace") == cut
        assert [one["line"] for one in (await small.agrep("100", "/workspace")).matches or []] == [100, 1000]
        assert len((await large.agrep("1", "/workspace")).matches or []) == 272

    async def test_files_in_the_workspace_and_elsewhere(self, backend: Backend) -> None:
        for path in ("/workspace/deep/er/a b.bin", "/tmp/deep/er/a b.bin", "/workspace/../tmp/up.bin"):
            content = bytes(range(256)) * 5000
            assert [one.error for one in await backend.aupload_files([(path, content)])] == [None]
            assert (await backend.adownload_files([path]))[0].content == content
            assert [one.error for one in await backend.aupload_files([(path, b"short")])] == [None]
            assert (await backend.adownload_files([path]))[0].content == b"short"

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("/workspace/missing", "file_not_found"),
            ("/tmp/missing", "file_not_found"),
            ("/workspace", "is_directory"),
            ("/tmp", "is_directory"),
            ("relative", "invalid_path"),
            ("/workspace/out", "invalid_path"),
            ("/tmp/pipe", "invalid_path"),
            ("/workspace/pipe", "invalid_path"),
            ("/workspace/nul\0", "the path contains a NUL byte"),
        ],
    )
    async def test_a_file_that_cannot_be_read_is_told_in_their_words(
        self, backend: Backend, path: str, error: str
    ) -> None:
        await backend.aexecute("ln -s /etc/passwd /workspace/out; mkfifo /tmp/pipe /workspace/pipe; echo 1 > /tmp/good")
        first, second = await backend.adownload_files([path, "/tmp/good"])
        assert (first.content, second.content) == (None, b"1\n")
        assert error in str(first.error)

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("/workspace", "is_directory"),
            ("/tmp", "is_directory"),
            ("/usr/no", "permission_denied"),
            ("/etc/passwd/x", "invalid_path"),
            ("", "invalid_path"),
        ],
    )
    async def test_a_file_that_cannot_be_written_is_told_in_their_words(
        self, backend: Backend, path: str, error: str
    ) -> None:
        first, second = await backend.aupload_files([(path, b"1"), ("/tmp/good", b"2")])
        assert (first.error, second.error) == (error, None)

    async def test_a_file_beyond_the_bound_is_refused(self, box: holdfast.Session) -> None:
        backend = Backend(box, max_file_bytes=1000)
        await backend.aexecute("for f in /tmp /workspace; do head -c 1000 /dev/zero > $f/is; seq 1000 > $f/over; done")
        for folder in ("/tmp", "/workspace"):
            fits, over = await backend.adownload_files([f"{folder}/is", f"{folder}/over"])
            assert (fits.content, fits.error) == (bytes(1000), None)
            assert over.content is None and "more than 1000 bytes" in str(over.error)

    async def test_a_session_that_is_gone_is_an_error_everywhere(self, backend: Backend, box: holdfast.Session) -> None:
        assert (await backend.awrite("/workspace/a", "1")).error is None
        await anyio.to_thread.run_sync(box.close)
        ended = await backend.aexecute("echo 1")
        assert (ended.exit_code, "session_closed" in ended.output) == (125, True)
        found: list[Any] = [
            await backend.als("/workspace"),
            await backend.aread("/workspace/a"),
            await backend.awrite("/workspace/b", "1"),
            await backend.aedit("/workspace/a", "1", "2"),
            await backend.aglob("*", "/workspace"),
            await backend.agrep("1", "/workspace"),
            (await backend.aupload_files([("/workspace/c", b"1")]))[0],
            (await backend.adownload_files(["/workspace/a"]))[0],
        ]
        assert all("is closed; open it again" in str(one.error) for one in found), found

    async def test_only_a_session_that_lives_in_the_one_loop_is_taken(self, box: holdfast.Session) -> None:
        with pytest.raises(errors.InvalidRequest, match=r"holdfast\.open_session"):
            Backend(box.asynchronous)  # type: ignore[arg-type]


def test_a_deep_agent_works_in_a_session(backend: Backend) -> None:
    """Called blocking and not, from one event loop after another; the sandbox is the same."""
    script = Script(
        call("write_file", file_path="/workspace/sum.py", content="print(6 * 7)\n"),
        call("execute", command="python3 /workspace/sum.py"),
        say("It is 42."),
        call("ls", path="/workspace"),
        call("execute", command="exit 3"),
        say("Still there."),
        call("edit_file", file_path="/workspace/sum.py", old_string="6 * 7", new_string="1 / 0"),
        call("execute", command="python3 /workspace/sum.py"),
        say("Broken."),
    )
    agent = create_deep_agent(script, backend=backend)
    asked: Any = {"messages": [("user", "go on")]}

    async def run() -> list[str]:
        return answers(await agent.ainvoke(asked))

    def answers(state: dict[str, Any]) -> list[str]:
        return [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]

    first = answers(agent.invoke(asked))
    assert "42\n" in first[1] and "exit code 0" in first[1]
    second = anyio.run(run)
    assert "/workspace/sum.py" in second[0] and "exit code 3" in second[1]
    third = anyio.run(run)
    assert "ZeroDivisionError" in third[1] and "exit code 1" in third[1]

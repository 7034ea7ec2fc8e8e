"""An agent's tools on the real engines: what a model would send, and what it would get."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from holdfast import ExecutionContext, aio
from holdfast.config import SandboxConfig
from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def prompt(folder: Path, sandbox: str) -> Path:
    path = folder / "agent.prompt"
    path.write_text(f"---\nmodel: any\n{sandbox}\n---\nYou are an agent.\n")
    return path


@pytest.mark.parametrize("engine", ["dagger", "docker", "local"])
async def test_one_line_of_frontmatter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    require("bubblewrap")
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    monkeypatch.setenv("DAGGER_HOST", require("dagger")["hosts"]["unix"])
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", require("dagger")["cli"])
    (tool,) = await aio.toolset(prompt(tmp_path, "sandbox: python"), engine=engine)
    call = {"code": "import sys; print(open('in').read(), sys.argv[1:])", "files": {"in": "x"}, "args": ["a"]}
    result = await tool.call(call)
    assert (result["ok"], result["stdout"], result["engine"]) == (True, "x ['a']\n", engine)
    late = await tool.call({"code": "while True: pass", "timeout_seconds": 1})
    assert (late["ok"], late["end_cause"], late["error_code"]) == (False, "timeout", "COMMAND_TIMEOUT")


@pytest.mark.parametrize("engine", ["docker", "local"])
async def test_agents_of_a_workflow_write_run_and_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    require("bubblewrap")
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    monkeypatch.setenv("HOLDFAST_STATE_DIR", f"/tmp/hf{secrets.token_hex(4)}")
    file = prompt(tmp_path, "sandbox:\n  mode: code\n  runtime: python\n  limits:\n    memory_mb: 256")
    context = ExecutionContext(workflow_run_id=f"wf-{secrets.token_hex(4)}")
    async with (
        await aio.toolset(file, context=context, engine=engine) as writer,
        await aio.toolset(file, context=context, engine=engine) as tester,
    ):
        opened = await writer.call("sandbox_open")
        assert (opened["created"], opened["engine"], opened["limits"]["memory_mb"]) == (True, engine, 256)
        assert (await writer.call("sandbox_fs_write", {"path": "a.py", "contents": "print(1/0)"}))["ok"]
        broken = await tester.call("sandbox_exec", {"cmd": ["python3", "a.py"]})
        assert (broken["exit_code"], "ZeroDivisionError" in broken["stderr"]) == (1, True)
        assert (await tester.call("sandbox_open"))["created"] is False
        assert (await writer.call("sandbox_fs_write", {"path": "a.py", "contents": "print(2)"}))["ok"]
        fixed = await tester.call("sandbox_exec", {"command": "python3 a.py && pwd"})
        assert fixed["stdout"] == "2\n/workspace\n"
        started = await writer.call("sandbox_exec", {"command": "echo begun; sleep 600", "stream": True})
        read = await tester.call("sandbox_exec_read", {"exec_id": started["exec_id"]})
        assert read["chunks"][0]["text"] == "begun\n"
        assert (await tester.call("sandbox_close"))["closed"] is True
        gone = await writer.call("sandbox_exec", {"cmd": ["true"]})
        assert (gone["ok"], gone["error_code"] in ("session_not_found", "session_lost")) == (False, True), gone
        again = await writer.call("sandbox_open")
        assert (again["created"], again["workspace_lost"]) == (True, False)  # it was closed, not lost
        await writer.call("sandbox_close")


async def test_an_image_by_its_short_name_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    require("images")
    monkeypatch.setenv("HOLDFAST_OWNER_KEY", secrets.token_hex(16))
    context = ExecutionContext(agent_run_id=f"r-{secrets.token_hex(4)}")
    async with await aio.toolset(SandboxConfig(mode="code"), engine="docker", context=context) as tools:
        for short, image in (("shell", "ubuntu:22.04"), ("python", "python:3.11-slim"), ("node", "node:20-slim")):
            opened = await tools.call("sandbox_open", {"image": short})
            assert (opened["ok"], opened["image"], opened["created"]) == (True, image, True)
            assert (await tools.call("sandbox_close"))["closed"] is True
        refused = await tools.call("sandbox_open", {"image": "golang:1.22"})
        assert (refused["error_code"], "ubuntu:22.04" in refused["error"]) == ("image_not_allowed", True)
        for wrong in ("", "NOT AN IMAGE", "sha256:" + "0" * 64):
            mistake = await tools.call("sandbox_open", {"image": wrong})
            assert mistake["error_code"] == "invalid_request"
            assert mistake["error"].startswith("image: ") and "python:3.11-slim" in mistake["error"]

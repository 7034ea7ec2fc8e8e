"""The two tools, as a model calls them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast import ExecutionContext, aio
from holdfast.staging.reach import Place
from holdfast.staging.store import Store
from holdfast.tools.toolset import Toolset

from .conftest import Outside, put

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
NAMES = ["sandbox_stage_file", "sandbox_publish_file"]


class Agent(Protocol):
    async def __call__(self, workflow: str) -> Toolset: ...


@pytest.fixture
async def agent(local: str, outside: Outside, tmp_path: Path) -> AsyncIterator[Agent]:
    """Makes the tools of an agent in code mode; their workflows end with the test."""
    (tmp_path / "agent.prompt").write_text("---\nsandbox:\n  mode: code\n---\nYou code.\n")
    workflows: set[str] = set()
    async with AsyncExitStack() as stack:

        async def make(workflow: str) -> Toolset:
            workflows.add(workflow)
            context = ExecutionContext(workflow_run_id=workflow)
            return await stack.enter_async_context(await aio.toolset(tmp_path / "agent.prompt", context=context))

        yield make
    for workflow in workflows:
        await aio.end_workflow(workflow)


def named(prefix: str = "wf") -> str:
    return f"{prefix}-{secrets.token_hex(6)}"


async def test_they_appear_where_a_store_is_configured(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = named()
    tools = await agent(workflow)
    assert [tool.name for tool in tools][-2:] == NAMES
    for name in NAMES:
        assert f"workflows/{workflow}/" in tools[name].description
        assert tools[name].input_schema["additionalProperties"] is False
    monkeypatch.delenv("HOLDFAST_NATS_URL")
    assert not set(NAMES) & {tool.name for tool in await agent(workflow)}


async def test_a_file_travels_between_agents_of_one_workflow_only(agent: Agent, outside: Outside) -> None:
    first, other = named(), named("other")
    writer, stranger = await agent(first), await agent(other)
    assert (await writer.call("sandbox_fs_write", {"path": "out/a.txt", "contents": "hello"}))["ok"]
    told = await writer.call("sandbox_publish_file", {"path": "out/a.txt"})
    assert (told["ok"], told["file_key"], told["size_bytes"]) == (True, f"workflows/{first}/out/a.txt", 5)
    assert told["path"] == "/workspace/out/a.txt" and told["file_id"] == told["file_key"]
    assert told["digest"] == (await outside.record(told["file_key"]))["digest"]
    for asked in ({"file_key": "out/a.txt", "path": "b"}, {"file_id": told["file_key"], "destination": "b"}):
        staged = await writer.call("sandbox_stage_file", asked)
        assert (staged["ok"], staged["path"], staged["digest"]) == (True, "/workspace/b", told["digest"])
    for key, code in ((told["file_key"], "policy_error"), ("out/a.txt", "staged_file_not_found")):
        refused = await stranger.call("sandbox_stage_file", {"file_key": key, "path": "b"})
        assert (refused["ok"], refused["error_code"]) == (False, code)
        assert refused["hint"]
    refused = await stranger.call("sandbox_publish_file", {"path": "b", "file_key": told["file_key"]})
    assert refused["ok"] is False
    listed = await stranger.call("sandbox_fs_list", {})
    assert listed["entries"] == []


async def test_a_grant_opens_what_it_says(
    agent: Agent, store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_READ", "shared/")
    await put(store, Place(bucket, "shared/data"), b"for all")
    tools = await agent(named())
    assert "shared/" in tools["sandbox_stage_file"].description
    assert "shared/" not in tools["sandbox_publish_file"].description
    staged = await tools.call("sandbox_stage_file", {"file_key": "shared/data", "path": "in/"})
    assert (staged["ok"], staged["file_key"], staged["path"]) == (True, "shared/data", "/workspace/in/data")
    refused = await tools.call("sandbox_publish_file", {"path": "in/data", "file_key": "/shared/data"})
    assert refused["error_code"] == "policy_error"


@pytest.mark.parametrize(
    ("name", "asked", "code"),
    [
        ("sandbox_stage_file", {"file_key": "a", "file_id": "a", "path": "b"}, "invalid_request"),
        ("sandbox_stage_file", {"file_key": "a"}, "invalid_request"),
        ("sandbox_stage_file", {"file_key": "../a", "path": "b"}, "invalid_request"),
        ("sandbox_stage_file", {"file_key": "missing", "path": "b"}, "staged_file_not_found"),
        ("sandbox_stage_file", {"file_key": "a", "path": "b", "bucket": "x.>"}, "invalid_request"),
        ("sandbox_publish_file", {"path": "missing"}, "not_found"),
        ("sandbox_publish_file", {"path": "../../etc/passwd"}, "path_not_allowed"),
        ("sandbox_publish_file", {"path": "."}, "is_a_directory"),
    ],
)
async def test_mistakes_are_results(agent: Agent, name: str, asked: dict[str, Any], code: str) -> None:
    refused = await (await agent(named())).call(name, asked)
    assert (refused["ok"], refused["error_code"]) == (False, code), refused
    assert refused["hint"]


async def test_a_store_that_is_not_there_is_a_result(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NATS_URL", "nats://127.0.0.1:1")
    told = await (await agent(named())).call("sandbox_stage_file", {"file_key": "a", "path": "b"})
    assert (told["error_code"], "not your mistake" in told["hint"]) == ("staging_unavailable", True)

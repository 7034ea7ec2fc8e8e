"""Compute mode with the store: files come in by their keys, and what is too large to be returned is published."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from holdfast import ExecutionContext, aio, errors
from holdfast.config import Limits
from holdfast.guest.oneshot import OneShot, Order
from holdfast.guest.replay import ReplayStream
from holdfast.staging.reach import Place
from holdfast.staging.store import Store
from tests.testbed import require
from tests.unit.scripted import COMMAND

from .conftest import Outside, get, put

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(120)]

PIECE = 128 << 10
LOOK = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"
WRITE = "import os; os.mkdir('out'); [open(f'out/{n}', 'wb').write(bytes([n]) * n * 100_000) for n in (1, 3, 9)]"


@pytest.fixture(params=["local", "docker", "dagger"])
def engine(request: pytest.FixtureRequest, local: str, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "docker":
        require("images")
        monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])
    return str(request.getfixturevalue("dagger") if request.param == "dagger" else request.param)


@pytest.fixture
def dagger(local: str, monkeypatch: pytest.MonkeyPatch) -> str:
    found = require("dagger")
    monkeypatch.setenv("DAGGER_HOST", found["hosts"]["unix"])
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", found["cli"])
    return "dagger"


async def test_a_staged_file_is_there_whole(engine: str, store: Store, outside: Outside, bucket: str) -> None:
    content = secrets.token_bytes(40 * PIECE + 1)
    await put(store, Place(bucket, "data/big"), content)
    await put(store, Place(bucket, "data/empty"), b"")
    result = await aio.run(
        LOOK,
        args=["in/big"],
        stage={"in/big": "data/big", "empty": "data/empty"},
        files={"in/small": b"here"},
        artifacts=["empty", "in/small"],
        engine=engine,
    )
    assert result.stdout.strip() == hashlib.sha256(content).hexdigest()
    assert {one.path: one.content for one in result.artifacts} == {"empty": b"", "in/small": b"here"}
    assert await outside.consumers() == 0


async def test_artifacts_over_the_cap_are_published(
    engine: str, store: Store, outside: Outside, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "400000")
    result = await aio.run(WRITE, artifacts=["out/*"], engine=engine)
    assert [(one.path, one.size_bytes) for one in result.artifacts] == [("out/1", 100_000), ("out/3", 300_000)]
    (published,) = result.artifacts_published
    assert (published.path, published.size_bytes, published.bucket) == ("out/9", 900_000, bucket)
    assert await get(store, Place(bucket, published.file_key)) == bytes([9]) * 900_000
    assert published.digest == (await outside.record(published.file_key))["digest"]
    assert result.artifacts_skipped == () and result.artifacts_unpublished == ""
    assert result.as_tool()["artifacts_published"] == [published.as_tool()]


async def test_on_dagger_what_is_too_large_to_be_held_is_skipped(
    dagger: str, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "1000")
    code = "open('fits', 'wb').write(bytes(40_000_000)); open('larger', 'wb').write(bytes(70_000_000))"
    result = await aio.run(code, artifacts=["fits", "larger"], engine=dagger)
    assert [(one.path, one.size_bytes) for one in result.artifacts_published] == [("fits", 40_000_000)]
    assert [(one.path, one.size_bytes) for one in result.artifacts_skipped] == [("larger", 70_000_000)]


async def test_without_a_store_they_are_skipped_and_with_one_that_fails_too(
    local: str, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "400000")
    monkeypatch.setenv("HOLDFAST_NATS_URL", "nats://127.0.0.1:1")
    result = await aio.run(WRITE, artifacts=["out/*"])
    assert result.ok and "127.0.0.1:1" in result.artifacts_unpublished
    assert [one.path for one in result.artifacts_skipped] == ["out/9"] and result.artifacts_skipped_count == 1
    assert len(result.artifacts) == 2
    monkeypatch.delenv("HOLDFAST_NATS_URL")
    result = await aio.run(WRITE, artifacts=["out/*"])
    assert [one.path for one in result.artifacts_skipped] == ["out/9"]
    assert not result.artifacts_published and not result.artifacts_unpublished
    with pytest.raises(errors.StagingUnavailable, match="HOLDFAST_NATS_URL"):
        await aio.run("print(1)", stage={"a": "a"})


async def test_a_damaged_file_means_that_nothing_runs(local: str, store: Store, outside: Outside, bucket: str) -> None:
    """The program would tell, by publishing."""
    await put(store, Place(bucket, "file"), bytes(5 * PIECE))
    record = await outside.record("file")
    await outside.delete_piece(record["nuid"], 4)
    await outside.client.jetstream().publish(f"$O.{bucket}.C.{record['nuid']}", b"x" * PIECE)
    said: list[bytes] = []
    with pytest.raises(errors.StagedFileDamaged):
        await aio.run("print('ran')", stage={"file": "file"}, on_output=lambda stream, data: said.append(data))
    assert not said
    for key, kind in (("missing", errors.StagedFileNotFound), ("../x", errors.InvalidRequest)):
        with pytest.raises(kind):
            await aio.run("print('ran')", stage={"file": key})
    for path in ("../x", "/etc/x", "main.py/", "main.py"):
        with pytest.raises((errors.PathNotAllowed, errors.InvalidRequest, errors.SandboxIsADirectory)):
            await aio.run("print('ran')", stage={path: "file"})


async def test_what_does_not_fit_is_refused_before_it_is_read(local: str, store: Store, bucket: str) -> None:
    await put(store, Place(bucket, "file"), bytes(2 << 20))
    with pytest.raises(errors.FileTooLarge):
        await aio.run("print(1)", stage={"a": "file"}, limits=Limits(max_file_size_bytes=(2 << 20) - 1))
    with pytest.raises(errors.WorkspaceFull):
        await aio.run("print(1)", stage=dict.fromkeys("abc", "file"), limits=Limits(workspace_mb=5))


async def test_a_cancelled_run_publishes_nothing(local: str, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "1000")
    code = "import os; open('big', 'wb').write(os.urandom(200_000_000)); print('written', flush=True)"
    await outside.make()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while await outside.pieces() == 0:
                    await anyio.sleep(0.01)
                scope.cancel()

            tasks.start_soon(watch)
            await aio.run(code, artifacts=["big"], timeout=60)
            tasks.cancel_scope.cancel()
    assert scope.cancelled_caught
    assert await outside.subjects() == {}


async def test_the_tool_is_bound_to_its_workflow(
    local: str, store: Store, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "100")
    (tmp_path / "agent.prompt").write_text("---\nsandbox: python\n---\nYou compute.\n")
    mine, other = (f"wf-{secrets.token_hex(6)}" for _ in range(2))
    for workflow in (mine, other):
        await put(store, Place(bucket, f"workflows/{workflow}/data"), workflow.encode())
    context = ExecutionContext(workflow_run_id=mine)
    (tool,) = await aio.toolset(tmp_path / "agent.prompt", context=context)
    assert "stage" in tool.input_schema["properties"] and f"workflows/{mine}/" in tool.description
    code = "print(open('in').read()); open('big', 'w').write('x' * 1000)"
    told = await tool.call({"code": code, "stage": {"in": "data"}, "artifacts": ["big"]})
    assert (told["ok"], told["stdout"]) == (True, f"{mine}\n"), told
    (published,) = told["artifacts_published"]
    assert published["file_key"].startswith(f"workflows/{mine}/runs/run-") and published["size_bytes"] == 1000
    again = await tool.call({"code": "print(len(open('in').read()))", "stage": {"in": published["file_key"]}})
    assert again["stdout"] == "1000\n"
    refused = await tool.call({"code": code, "stage": {"in": f"workflows/{other}/data"}})
    assert refused["error_code"] == "policy_error"
    monkeypatch.delenv("HOLDFAST_NATS_URL")
    (tool,) = await aio.toolset(tmp_path / "agent.prompt", context=context)
    assert "stage" not in tool.input_schema["properties"]


class Held:
    """A staged file of zeros."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, self.size_bytes, PIECE):
                yield bytes(min(PIECE, self.size_bytes - at))

        yield pieces()


async def test_an_engine_that_has_to_hold_all_takes_so_much_and_no_more() -> None:
    """As Dagger: the guest is started when the host has said all."""
    said: list[bytes] = []

    async def deliver(request: bytes, max_answer_bytes: int) -> bytes:
        said.append(request)
        return b""

    async def told(size: int) -> None:
        oneshot = OneShot(
            ReplayStream(deliver), Order(command=COMMAND, files={"main.py": b""}, staged={"a": Held(size)})
        )
        await oneshot.send()
        await oneshot.receive()

    with pytest.raises(errors.SandboxError):  # a guest that says nothing
        await told(5 * PIECE + 1)
    assert said[0].count(bytes(PIECE)) >= 5
    with pytest.raises(errors.FileTooLarge, match="has to hold"):
        await told((64 << 20) + 1)
    assert len(said) == 1

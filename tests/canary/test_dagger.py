from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import cast

import anyio
import dagger
import pytest
from dagger import dag

from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

HOSTS = ("unix", "tcp", "container")


@pytest.fixture
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Points the SDK and the CLI to the testbed's engine by one of its addresses."""
    settings = require("dagger")
    address = cast("dict[str, str]", settings["hosts"])[getattr(request, "param", "unix")]
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_RUNNER_HOST", address)
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", settings["cli"])
    monkeypatch.setenv("DOCKER_HOST", require("docker")["host"])  # for container://
    return address


async def python(code: str) -> str:
    async with dagger.connection():
        container = dag.container().from_(require("images")["python"])
        # A nonce, or the engine answers with what the same code said before.
        container = container.with_env_variable("NONCE", uuid.uuid4().hex)
        return await container.with_exec(["python", "-c", code]).stdout()


@pytest.mark.parametrize("host", HOSTS, indirect=True)
async def test_code_runs_through_each_address(host: str) -> None:
    assert await python("print(6 * 7)") == "42\n"


async def test_a_failing_program_is_told_from_a_good_one(host: str) -> None:
    with pytest.raises(dagger.ExecError) as caught:
        await python("raise SystemExit(3)")
    assert caught.value.exit_code == 3
    assert await python("print('fine')") == "fine\n"


@pytest.mark.timeout(240)
async def test_an_exec_of_45_seconds_survives(host: str) -> None:
    """Some Go releases cut every query after 30 s: see testbed/parts/go.py."""
    assert await python("import time; time.sleep(45); print('awake')") == "awake\n"


async def test_the_cli_calls_a_module(host: str, tmp_path: Path) -> None:
    module = {"name": "canary", "engineVersion": "v0.21.0", "sdk": {"source": "dang"}}
    (tmp_path / "dagger.json").write_text(json.dumps(module))
    (tmp_path / "main.dang").write_text(
        'type Canary {\n  pub hello(name: String! = "world"): String! {\n    "hello, " + name\n  }\n}\n'
    )
    argv = [require("dagger")["cli"], "--silent", "--mod", ".", "call", "hello", "--name", "testbed"]
    said = await anyio.run_process(argv, cwd=tmp_path, env=dict(os.environ))
    assert said.stdout.decode().strip() == "hello, testbed"

"""The MCP Inspector, the reference client of the TypeScript SDK, by its command line: it lists and calls the tools.

It comes from the npm registry, once for each machine, into the testbed's cache. 1.0.3 is the last that runs on Node 20.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from testbed.cache import default_root
from tests.testbed import without

from .mcp_host import HOLDFAST, PATIENCE, serving

PACKAGE = "@modelcontextprotocol/inspector@1.0.3"
pytestmark = [
    pytest.mark.engines,
    pytest.mark.parametrize("engine", ["local"], indirect=True),
    pytest.mark.timeout(600),  # the first time, npm fetches 160 MB
]


@pytest.fixture(scope="session")
def inspector() -> Path:
    """The program `mcp-inspector`."""
    root = default_root(os.environ)
    folder = root / "built" / PACKAGE.rpartition("/")[2]
    program = folder / "node_modules" / ".bin" / "mcp-inspector"
    if not shutil.which("npm"):
        without("npm is not installed")
    (root / "built").mkdir(parents=True, exist_ok=True)
    with (root / "inspector.lock").open("w") as lock:  # several workers of pytest may come here at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install(folder)
    return program


def _install(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", f"--prefix={work}"]
        done = subprocess.run(["npm", "install", *options, PACKAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            without(f"npm cannot install {PACKAGE}: {done.stderr[-500:]}")
        Path(work, "node_modules").rename(_emptied(folder) / "node_modules")


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def asked(inspector: Path, target: list[str], *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [inspector, "--cli", *target, "--method", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def lists_and_calls(inspector: Path, target: list[str]) -> None:
    (tool,) = asked(inspector, target, "tools/list")["tools"]
    assert (tool["name"], "code" in tool["inputSchema"]["properties"]) == ("sandbox_run", True)
    assert "exit_code" in tool["outputSchema"]["properties"]
    call = ("tools/call", "--tool-name", "sandbox_run")
    answer = asked(inspector, target, *call, "--tool-arg", "code=print(6 * 7)")
    assert (answer["structuredContent"]["stdout"], answer.get("isError", False)) == ("42\n", False)
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    wrong = asked(inspector, target, *call, "--tool-arg", "cod=print(6 * 7)")
    assert (wrong["isError"], wrong["structuredContent"]["error_code"]) == (True, "invalid_request")


def test_over_stdio(engine: str, inspector: Path) -> None:
    lists_and_calls(inspector, [HOLDFAST, "mcp"])


def test_over_http(engine: str, inspector: Path) -> None:
    with serving() as served:
        token = f"Authorization: Bearer {served.token}"
        lists_and_calls(inspector, [served.url, "--transport", "http", "--header", token])
        with pytest.raises(AssertionError, match="token is missing or wrong"):
            asked(inspector, [served.url, "--transport", "http", "--header", f"{token}x"], "tools/list")

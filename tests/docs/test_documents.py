"""Every example in the documents runs, and prints what the document says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.testbed import require

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_HERE = ("make ",)
"""commands that this suite is part of"""

PATIENCE = 280
"""seconds: frameworks take their time to be imported while other tests run"""

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for number, found in enumerate(re.finditer(rf"```{kind}\n(.*?)```", document.read_text(), re.DOTALL)):
            yield f"{document.name}-{number}", found[1]


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as state:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        store = {}
        if "staging.md" in request.node.name:
            store = {"HOLDFAST_NATS_URL": require("nats")["url"], "HOLDFAST_STAGING_BUCKET": f"hf-{uuid4().hex}"}
        yield {**os.environ, **store, "PATH": path, "HOLDFAST_STATE_DIR": state}


@pytest.mark.parametrize(("name", "code"), [pytest.param(*block, id=block[0]) for block in blocks("python")])
def test_python_example_runs(name: str, code: str, environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "text"), [pytest.param(*block, id=block[0]) for block in blocks("console")])
def test_console_example_prints_what_it_says(name: str, text: str, environment: dict[str, str], tmp_path: Path) -> None:
    for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = example.partition("\n")
        if command.startswith(NOT_HERE):
            continue
        done = subprocess.run(
            command,
            shell=True,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        if expected:
            assert done.stdout == expected, command


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
        for target in re.findall(r"`((?:tests|src|examples|testbed)/[\w./-]+)`", document.read_text()):
            assert (ROOT / target).exists(), f"{document.name} names {target}"


def run_example(name: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_of_the_tree_run(environment: dict[str, str]) -> None:
    said = run_example("first_run.py", environment)
    assert '"error_count": 20' in said
    assert "nothing is left" in said


@pytest.mark.parametrize("engine", ["local", "docker"])
def test_three_agents_share_a_session(engine: str, environment: dict[str, str]) -> None:
    require("bubblewrap" if engine == "local" else "images")
    said = run_example("three_agents.py", {**environment, "HOLDFAST_ENGINE": engine})
    assert f"session made on {engine}" in said and said.count(f"session found on {engine}") == 2
    assert "failed: AssertionError: between the two" in said and "watcher says: passed" in said
    assert "1 session ended" in said

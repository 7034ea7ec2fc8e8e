"""The example agents: a framework's own loop, a model that is a script, and a real sandbox."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.engines


def said_by(example: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{example}"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_agent_of_langchain_mends_its_program(engine: str) -> None:
    said = said_by("agent_loop_langchain.py")
    assert "✘ sandbox_exec  →  AssertionError: between the two" in said
    assert "✘ sandbox_fs_write  →  overwrites: there is no such argument; did you mean overwrite?" in said
    assert "✔ sandbox_exec  →  passed" in said


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_an_agent_of_openai_computes(engine: str) -> None:
    said = said_by("agent_loop_openai_agents.py")
    assert "✘ sandbox_run on local  →  FileNotFoundError" in said
    assert "✔ sandbox_run on local  →  20 errors; most often: payment-api: upstream timed out after 30s" in said

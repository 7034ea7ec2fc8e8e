"""The real command line, as a subprocess, on the engine `local`; each test has a state folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import without

PATIENCE = 60.0
"""Seconds that nothing may take: a test that waits for more hangs."""


@dataclass(frozen=True)
class Cli:
    """Calls `holdfast` in a folder of its own."""

    program: Path
    folder: Path
    env: dict[str, str]

    def __call__(
        self, *words: str, stdin: str | bytes | None = None, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.program, *words],
            cwd=self.folder,
            env=self.env,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str, stdin: str | bytes | None = None) -> str:
        """What a call that must succeed wrote to stdout."""
        done = self(*words, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout

    def json(self, *words: str, status: int = 0) -> dict[str, Any]:
        done = self(*words)
        assert done.returncode == status, done
        told = json.loads(done.stdout)
        assert isinstance(told, dict)
        return told

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """A call that goes on; its pipes are not buffered."""
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [self.program, *words], cwd=self.folder, env=self.env, bufsize=0, **{**pipes, **options}
        )

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    if not shutil.which("bwrap"):
        without("bubblewrap is not installed. Next: call testbed/up bubblewrap.")
    # Short: a socket's path has 107 characters.
    state = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf"))
    scripts = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "STATION_"))}
    env = {
        **kept,
        "HOLDFAST_STATE_DIR": str(state),
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",  # other tests' sessions are not ours to list or to sweep
    }
    try:
        yield Cli(scripts / "holdfast", tmp_path, dict(env))
    finally:
        program = Cli(scripts / "holdfast", tmp_path, env)
        for session in json.loads(program("ps", "--json").stdout)["sessions"]:
            key = {"workflow": "--workflow", "custom": "--session", "agent": "--agent"}[session["namespace"]]
            name = [] if session["name"] == "default" else ["--session", session["name"]]
            program.ok("close", key, session["id"], *name)
        shutil.rmtree(state)

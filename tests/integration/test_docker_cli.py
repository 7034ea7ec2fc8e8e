"""The command line while an image is pulled: a live line for a terminal, and for nobody else."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_docker_images import Pushed, pushed

__all__ = ["pushed"]
pytestmark = pytest.mark.engines

PROGRAM = Path(sys.executable).parent / "holdfast"


def call(image: str, *words: str, terminal: bool) -> tuple[int, bytes, bytes]:
    """Exit status, stdout and stderr; with a terminal, what it was shown."""
    env = {**os.environ, "STATION_SANDBOX_ALLOWED_IMAGES": image, "HOLDFAST_ENGINE": "docker", "TERM": "xterm"}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        [PROGRAM, *words, "--image", image], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # a terminal ends with EIO
                piece = b""
            if not piece:
                break
            shown += piece
        assert process.stdout
        told = process.stdout.read()
        return process.wait(60), told, shown


def test_a_person_sees_the_pull_and_no_trace_of_it_stays(daemon: Any, pushed: Pushed) -> None:
    image = f"{pushed.name}:1"
    words = ("open", "--workflow", "pull")
    status, told, shown = call(image, *words, terminal=True)
    try:
        assert status == 0, shown
        assert f"pulling {image}".encode() in shown
        assert "█".encode() in shown
        assert b"3.0 MB of 3.0 MB" in shown
        assert shown.endswith(b"\r\x1b[K")
        assert b"created" in told
        assert b"pulling" not in told
    finally:
        subprocess.run([PROGRAM, "close", "--workflow", "pull", "--engine", "docker"], check=True, capture_output=True)


@pytest.mark.parametrize(("words", "terminal"), [(["--json"], True), ([], False)], ids=["json", "no terminal"])
def test_nobody_else_sees_it(daemon: Any, pushed: Pushed, words: list[str], terminal: bool) -> None:
    """The image has no program at all, so that the run fails, after the pull."""
    status, told, shown = call(f"{pushed.name}:1", "run", "-c", "print(1)", *words, terminal=terminal)
    assert status == 125
    assert b"pulling" not in shown
    if words:
        assert json.loads(told)["error_code"] == "command_not_found"
        assert not shown
    else:
        assert b"python3" in shown

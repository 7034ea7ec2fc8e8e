"""Ctrl-C and its relatives: cancelled means that nothing is left."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines


def processes(mark: str) -> list[str]:
    """Command lines on this machine that contain a text, which nobody else has."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


def gone(mark: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes(mark)


def begun(mark: str) -> bool:
    """Whether more than our own command line has the mark: a program that says it is ready may not be exec'd yet."""
    deadline = time.monotonic() + PATIENCE
    while len(processes(mark)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(processes(mark)) > 1


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """A caller's nohup is inherited, and respected: this suite may have one."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def mark() -> str:
    return f"mark-{secrets.token_hex(8)}"


def stubborn(mark: str) -> str:
    """A program that ignores what can be ignored, and leaves a child that has gone its own way."""
    return f"trap '' INT TERM HUP; setsid bash -c 'exec -a {mark} sleep 1000' & echo ready; exec -a {mark} sleep 1000"


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    line = process.stdout.readline()
    assert line == b"ready\n", process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_cancels_a_run_and_leaves_nothing(cli: Cli, mark: str, number: signal.Signals, status: int) -> None:
    with cli.start("run", "-r", "bash", "-c", stubborn(mark)) as process:
        ready(process)
        assert begun(mark)
        process.send_signal(number)
        assert process.wait(PATIENCE) == status
        assert process.stderr
        assert process.stderr.read() == b""
    assert gone(mark)
    assert not list(Path(cli.env["HOLDFAST_STATE_DIR"], "sessions").iterdir())


def test_ctrl_c_at_a_terminal_goes_to_the_whole_group(cli: Cli, mark: str) -> None:
    with cli.start("run", "-r", "bash", "-c", stubborn(mark), start_new_session=True) as process:
        ready(process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr
        assert process.stderr.read() == b""
    assert gone(mark)


def test_a_killed_command_leaves_nothing_either(cli: Cli, mark: str) -> None:
    with cli.start("run", "-r", "bash", "-c", stubborn(mark)) as process:
        ready(process)
        process.kill()
    assert gone(mark)


def test_ctrl_c_works_while_nobody_reads_the_output(cli: Cli, mark: str) -> None:
    with cli.start("run", "-r", "bash", "-c", f"echo ready; exec -a {mark} yes") as process:
        ready(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130  # our end of the pipe is full and open
    assert gone(mark)


def test_ctrl_c_ends_one_exec_and_not_the_session(cli: Cli, mark: str) -> None:
    cli.ok("open", "--session", "s", "-r", "bash")
    cli.ok("exec", "--session", "s", "-d", "--", "bash", "-c", f"exec -a {mark}-kept sleep 1000")
    with cli.start("exec", "--session", "s", "-c", f'bash -c "{stubborn(mark + "-ended")}"') as process:
        ready(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert gone(mark + "-ended")
    assert processes(mark + "-kept")
    assert cli.ok("exec", "--session", "s", "--", "echo", "alive") == "alive\n"
    cli.ok("close", "--session", "s")
    assert gone(mark + "-kept")


def test_a_signal_that_the_caller_ignores_stays_ignored(cli: Cli) -> None:
    line = "trap '' INT; holdfast run -r bash -c 'echo ready; read; echo over'"
    with subprocess.Popen(
        ["bash", "-c", line],
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        ready(process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdin and process.stdout
        process.stdin.write(b"\n")
        assert process.stdout.read() == b"over\n"
        assert process.wait(PATIENCE) == 0

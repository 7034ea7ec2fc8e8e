"""Commands that go on by themselves: what they wrote, and how they are ended, from other processes."""

from __future__ import annotations

import json
import signal
import time

import pytest

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines

ASKED = ("--workflow", "w")
WAITS = "echo begun; echo aside >&2; until [ -e go ]; do sleep 0.05; done; echo done; exit 7"


def detached(cli: Cli, line: str) -> str:
    cli.ok("open", *ASKED)
    return cli.ok("exec", *ASKED, "--detach", "-c", line).strip()


def begun(cli: Cli) -> None:
    deadline = time.monotonic() + PATIENCE
    while cli.json("logs", *ASKED, "--json")["stderr"] != "aside\n":
        assert time.monotonic() < deadline


def test_logs_show_what_there_is_and_follow_to_the_end(cli: Cli) -> None:
    name = detached(cli, WAITS)
    begun(cli)
    now = cli("logs", *ASKED)
    assert (now.returncode, now.stdout) == (0, "begun\n")
    assert "aside\n" in now.stderr
    assert f"holdfast logs --workflow w --follow {name}" in now.stderr
    following = cli.start("logs", *ASKED, "--follow", name)
    assert following.stdout is not None
    assert following.stdout.readline() == b"begun\n"
    cli.ok("exec", *ASKED, "--", "touch", "go")
    rest, _ = following.communicate(timeout=PATIENCE)
    assert (rest, following.returncode) == (b"done\n", 7)
    told = cli.json("logs", *ASKED, "--json", name)
    assert (told["done"], told["exit_code"], told["stdout"]) == (True, 7, "begun\ndone\n")
    assert cli("logs", *ASKED, name).returncode == 0  # it tells of a failure; it is none


def test_who_stops_following_leaves_the_command_running(cli: Cli) -> None:
    name = detached(cli, WAITS)
    following = cli.start("logs", *ASKED, "--follow", name)
    assert following.stdout is not None
    assert following.stdout.readline() == b"begun\n"
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=PATIENCE)
    assert following.returncode == 128 + signal.SIGINT
    assert cli.json("logs", *ASKED, "--json", name)["done"] is False
    cli.ok("exec", *ASKED, "--", "touch", "go")
    assert cli("logs", *ASKED, "--follow", name).returncode == 7


def test_what_was_not_kept_is_confessed(cli: Cli) -> None:
    name = detached(cli, "head -c 3000000 /dev/zero")
    done = cli("logs", *ASKED, "--follow", name)
    told = cli.json("logs", *ASKED, "--json", name)
    missing = 3_000_000 - len(told["stdout"])
    assert told["stdout_total_bytes"] == 3_000_000
    assert told["missing_bytes"] == missing > 0
    assert f"{3_000_000 - len(done.stdout)} bytes are missing" in done.stderr or len(done.stdout) == 3_000_000
    whole = detached(cli, "head -c 1000 /dev/zero")
    shown = cli("logs", *ASKED, "--follow", whole)
    assert (shown.stdout, shown.stderr) == ("\0" * 1000, "")


def test_kill_ends_a_command_and_no_other(cli: Cli) -> None:
    first, second = detached(cli, "sleep 300 & sleep 300"), detached(cli, WAITS)
    cli.ok("kill", *ASKED, first)
    cli.ok("kill", *ASKED, first)  # again is fine
    (session,) = cli.json("ps", "--execs", "--json")["sessions"]
    states = {one["exec_id"]: one["state"] for one in session["execs"]}
    assert states == {first: "killed, signal 9", second: "running"}
    trapped = detached(cli, "trap 'echo asked; exit 3' TERM; echo begun; while :; do sleep 0.05; done")
    following = cli.start("logs", *ASKED, "--follow", trapped)
    assert following.stdout is not None
    assert following.stdout.readline() == b"begun\n"
    cli.ok("kill", *ASKED, "-s", "TERM", trapped)
    rest, _ = following.communicate(timeout=PATIENCE)
    assert rest == b"asked\n"


def test_mistakes_are_named(cli: Cli) -> None:
    cli.ok("open", *ASKED)
    for words in (["logs", *ASKED], ["logs", *ASKED, "x9"], ["kill", *ASKED, "x9"]):
        done = cli(*words)
        assert (done.returncode, done.stdout) == (125, "")
        assert "nothing was started" in done.stderr or "there is no exec" in done.stderr
    assert json.loads(cli("logs", *ASKED, "--json", "x9").stdout)["error_code"] == "exec_not_found"
    for words in (["kill", *ASKED, "-s", "NOPE", "x1"], ["kill", *ASKED], ["logs"], ["kill", "x1"]):
        assert cli(*words).returncode == 2

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines


def records(cli: Cli) -> list[dict[str, Any]]:
    """What the engine wrote down of its sessions."""
    found = Path(cli.env["HOLDFAST_STATE_DIR"], "sessions").glob("*/record.json")
    return [json.loads(path.read_text()) for path in found]


def test_a_session_stays_until_it_is_closed(cli: Cli) -> None:
    first = cli.json("open", "--workflow", "w", "--json", "-r", "bash", "--memory-mb", "100")
    assert (first["created"], first["changed"], first["key"]) == (True, False, "workflow/w/default")
    assert first["limits"]["memory_mb"] == 100
    again = cli.json("open", "--workflow", "w", "--json", "-r", "bash", "--memory-mb", "100")
    assert (again["created"], again["changed"]) == (False, False)
    assert cli.json("open", "--workflow", "w", "--json")["changed"] is True
    assert cli.ok("close", "--workflow", "w") == "closed workflow/w/default\n"
    done = cli("exec", "--workflow", "w", "--", "true")
    assert done.returncode == 125
    assert "open it first: holdfast open --workflow w" in done.stderr
    assert cli("close", "--workflow", "w").returncode == 125


def test_open_prints_what_it_made(cli: Cli) -> None:
    told = cli.ok("open", "--workflow", "w", "--session", "two words")
    for word in ("workflow/w/two words", "created", "local", "memory_mb 512", "--session 'two words'"):
        assert word in told
    assert "resumed" in cli.ok("open", "--workflow", "w", "--session", "two words")


def test_without_a_key_a_session_gets_a_name_to_find_it_by(cli: Cli) -> None:
    name = cli.json("open", "--json")["id"]
    assert cli.ok("exec", "--session", name, "--", "echo", "hi") == "hi\n"
    assert cli.json("open", "--json")["id"] != name


def test_the_environment_can_name_the_session(cli: Cli) -> None:
    cli.env["HOLDFAST_WORKFLOW"] = "w"
    cli.env["HOLDFAST_SESSION"] = "s"
    assert cli.json("open", "--json")["key"] == "workflow/w/s"
    assert cli.ok("exec", "echo", "hi") == "hi\n"
    cli.ok("close")


@pytest.mark.parametrize("words", [["exec", "true"], ["ls"], ["rm", "x"], ["close"], ["cp", "a", ":b"]], ids=" ".join)
def test_a_session_must_be_named(cli: Cli, words: list[str]) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert "--workflow" in done.stderr


def test_an_argument_with_spaces_is_one_argument_and_a_line_is_for_the_shell(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    assert cli.ok("exec", "--session", "s", "--", "printf", "<%s>", "a b", "-c") == "<a b><-c>"
    assert cli.ok("exec", "--session", "s", "printf", "<%s>", "-x") == "<-x>"
    assert cli.ok("exec", "--session", "s", "-c", "printf '<%s>' a b") == "<a><b>"
    assert cli("exec", "--session", "s", "--", "echo a").returncode == 125  # there is no program of that name
    assert cli("exec", "--session", "s", "-c", "true", "--", "true").returncode == 2
    assert cli("exec", "--session", "s").returncode == 2


def test_exec_takes_folder_environment_timeout_and_stdin(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    assert cli.ok("exec", "--session", "s", "--cwd", "/tmp", "-e", "A=1 2", "-c", 'pwd; echo "$A"') == "/tmp\n1 2\n"
    assert cli.ok("exec", "--session", "s", "--", "wc", "-c", stdin=b"\0" * 3_000_000) == "3000000\n"
    done = cli("exec", "--session", "s", "-t", "0.3", "--", "sleep", "1000")
    assert (done.returncode, done.stdout) == (124, "")
    assert "0.3 s" in done.stderr
    assert cli("exec", "--session", "s", "-c", "exit 3").returncode == 3
    assert cli("exec", "--session", "s", "-c", "kill -SEGV $$").returncode == 139


def test_exec_as_json(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    told = cli.json("exec", "--session", "s", "--json", "-c", "echo out; echo err >&2; exit 3", status=3)
    assert (told["ok"], told["exit_code"], told["stdout"], told["stderr"]) == (False, 3, "out\n", "err\n")
    told = cli.json("exec", "--session", "s", "--json", "--", "nope", status=125)
    assert (told["ok"], told["error_code"], told["reason"]) == (False, "command_not_found", "EXEC_FAILED")
    told = cli.json("exec", "--session", "s", "--json", "-t", "0.3", "--", "sleep", "1000", status=124)
    assert (told["ok"], told["error_code"]) == (False, "COMMAND_TIMEOUT")
    told = cli.json("open", "--session", "t", "--engine", "docker", "--json", status=125)
    assert (told["ok"], told["error_code"]) == (False, "engine_unavailable")
    assert told["reason"] == "CONTAINER_START_FAILED"


def test_exec_output_is_live(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    with cli.start("exec", "--session", "s", "-c", "echo ready; read line; echo got $line") as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"it\n")
        assert process.stdout.readline() == b"got it\n"
        assert process.wait(PATIENCE) == 0


def test_a_detached_exec_goes_on_and_ps_shows_it(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    started = cli.ok("exec", "--session", "s", "-d", "-c", "read x < fifo || sleep 1000; printf '\\033[31m'").strip()
    told = cli.json("ps", "--json", "--execs")
    (session,) = told["sessions"]
    assert (session["key"], session["status"]["running_execs"]) == ("custom/s/default", 1)
    assert [(one["exec_id"], one["running"]) for one in session["execs"]] == [(started, True)]
    shown = cli.ok("ps", "--execs")
    assert started in shown
    assert "\x1b" not in shown  # what a sandbox says does not drive a terminal
    assert cli.json("exec", "--session", "s", "--json", "-d", "--", "true")["exec_id"] != started


def test_a_program_waits_for_a_reader_and_nothing_is_lost(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    with cli.start("exec", "--session", "s", "-c", "head -c 40000000 /dev/zero; echo end >&2") as process:
        deadline = time.monotonic() + PATIENCE
        while not _running(cli) and time.monotonic() < deadline:
            pass
        assert process.stdout and process.stderr
        assert _running(cli)  # 40 MB do not fit anywhere on the way
        assert len(process.stdout.read()) == 40_000_000
        assert process.stderr.read() == b"end\n"
        assert process.wait(PATIENCE) == 0
    assert not _running(cli)


def _running(cli: Cli) -> bool:
    execs = cli.json("ps", "--json", "--execs")["sessions"][0]["execs"]
    return any(one["running"] for one in execs)


def test_a_session_can_be_kept_after_its_workflow(cli: Cli) -> None:
    opened = cli.json("open", "--workflow", "w", "--keep-for", "600", "--max-lifetime", "5000", "--json")
    assert (opened["workspace_lost"], opened["expires_at"] > time.time()) == (False, True)
    assert "in 83 min" in cli.ok("ps")
    cli.ok("exec", "--workflow", "w", "-c", "echo found > it")
    assert cli.ok("close", "--workflow", "w", "--all") == "closed 1\n"
    (kept,) = cli.json("ps", "--json")["sessions"]
    assert 0 < kept["expires_in_seconds"] <= 600
    assert cli.ok("exec", "--workflow", "w", "--", "cat", "it") == "found\n"
    cli.ok("close", "--workflow", "w")
    assert not cli.json("ps", "--json")["sessions"]


def test_ps_does_not_keep_a_session_alive(cli: Cli) -> None:
    cli.ok("open", "--session", "s", "--idle-timeout", "1")
    deadline = time.monotonic() + PATIENCE
    while cli.json("ps", "--json")["sessions"]:
        assert time.monotonic() < deadline


def test_ps_shows_a_session_that_does_not_answer(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    (record,) = records(cli)
    pid = record["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (row,) = [line for line in cli.ok("ps").splitlines() if "custom/s" in line]
        assert row.split()[-3:] == ["?", "?", "?"]
        cli.ok("close", "--session", "s")  # and it can be closed
    finally:
        _kill(pid)
    assert not cli.json("ps", "--json")["sessions"]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


def test_close_all_ends_one_workflow(cli: Cli) -> None:
    for words in (["--workflow", "w"], ["--workflow", "w", "--session", "b"], ["--workflow", "w2"]):
        cli.ok("open", *words)
    assert cli.ok("close", "--workflow", "w", "--all") == "closed 2\n"
    assert [one["id"] for one in cli.json("ps", "--json")["sessions"]] == ["w2"]
    assert cli("close", "--session", "x", "--all").returncode == 2
    for words in (["--agent", "r1"], ["--agent", "r1", "--session", "b"], ["--agent", "r2"]):
        cli.ok("open", *words)
    assert cli.ok("close", "--agent", "r1", "--all") == "closed 2\n"
    assert [one["id"] for one in cli.json("ps", "--json")["sessions"]] == ["w2", "r2"]


def test_sweep_removes_the_dead_and_leaves_the_living(cli: Cli) -> None:
    cli.ok("open", "--session", "dead")
    cli.ok("open", "--session", "living")
    (pid,) = [record["pid"] for record in records(cli) if record["labels"]["id"] == "dead"]
    os.kill(pid, signal.SIGKILL)
    assert cli.ok("sweep") == "removed 1\n"
    assert cli.json("sweep", "--json") == {"ok": True, "removed": 0}
    assert [one["id"] for one in cli.json("ps", "--json")["sessions"]] == ["living"]
    assert len(records(cli)) == 1

"""Help that is true: every example of every command runs."""

from __future__ import annotations

import json
import shutil

import pytest

from .conftest import Cli

pytestmark = pytest.mark.engines

_WITHOUT_SESSION = ("run", "open", "doctor", "config", "agent", "tools", "completion")
_COMMANDS = (*_WITHOUT_SESSION, "exec", "logs", "kill", "cp", "ls", "rm", "close", "ps", "sweep")


def examples(cli: Cli, command: str) -> list[str]:
    text = cli.ok(command, "--help").partition("\nExamples:\n")[2]
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_all_commands_are_listed_with_their_purpose(cli: Cli) -> None:
    told = cli.ok("--help")
    for command in _COMMANDS:
        (line,) = [line for line in told.splitlines() if line.startswith(f"  {command} ")]
        assert line.endswith(".")
        assert not line.endswith("...")  # short enough to be read
    assert cli.ok("--version").startswith("holdfast, version 0.")
    assert cli("nope").returncode == 2
    assert "Commands:" in cli().stderr


@pytest.mark.parametrize("command", _COMMANDS)
def test_examples_run(cli: Cli, command: str) -> None:
    (cli.folder / "main.py").write_text("print('main')\n")
    (cli.folder / "data.csv").write_text("a,b\n1,2\n")
    (cli.folder / "agent.prompt").write_text("---\nsandbox: python\n---\nYou compute.\n")
    (cli.folder / "coder.prompt").write_text("---\nsandbox:\n  mode: code\n---\nYou code.\n")
    if command not in _WITHOUT_SESSION:
        cli.ok("open", "--workflow", "demo")
        cli.ok("exec", "--workflow", "demo", "--detach", "-c", "echo made; sleep 300")
        cli.ok("exec", "--workflow", "demo", "-c", "mkdir build; touch old.txt build/x")
    lines = examples(cli, command)
    assert lines
    for line in lines:
        if "--follow" in line:
            cli.ok("kill", "--workflow", "demo", "x1")
            assert cli.shell(line).returncode == 128 + 9
            continue
        if (" -r node " in line and not shutil.which("node")) or " -p " in line:
            continue  # packages need another engine: tests/dagger
        done = cli.shell(line)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout or command in ("cp", "rm", "run", "kill", "completion"), line


def test_doctor_tells_what_works(cli: Cli) -> None:
    told = cli.json("doctor", "--json")
    assert told["ok"] is True
    local = told["engines"]["local"]
    assert local["works"] is True
    assert "network_off" in local["guarantees"]
    assert "images" in local["lacks"]
    assert told["guest"]["host"] in told["guest"]["built_for"]
    shown = cli.ok("doctor")
    for word in ("local", "yes", "bubblewrap", "guarantees", "no network", "guest", "protocol"):
        assert word in shown


def test_doctor_tells_what_is_missing_and_how_to_get_it(cli: Cli) -> None:
    cli.env["PATH"] = "/nonexistent"
    done = cli("doctor", "--json")
    assert done.returncode == 1
    local = json.loads(done.stdout)["engines"]["local"]
    assert local["works"] is False
    assert "bwrap is not installed" in local["reason"]
    assert "apt-get install bubblewrap" in local["fix"]
    shown = cli("doctor")
    assert shown.returncode == 1
    assert "apt-get install bubblewrap" in shown.stdout
    assert cli("run", "-c", "pass").returncode == 125


def test_doctor_believes_only_what_it_has_seen(cli: Cli) -> None:
    """A bwrap that is there and does not work."""
    folder = cli.folder / "bin"
    folder.mkdir()
    (folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no permission' >&2; exit 1\n")
    (folder / "bwrap").chmod(0o755)
    cli.env["PATH"] = f"{folder}:{cli.env['PATH']}"
    done = cli("doctor", "--json")
    assert done.returncode == 1
    assert "no permission" in json.loads(done.stdout)["engines"]["local"]["reason"]

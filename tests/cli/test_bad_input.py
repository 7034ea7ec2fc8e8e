"""Each bad input has one named error that says what to do. (No NUL and no argument of 200 kB: execve has them refused
before `holdfast` starts; the library's tests have both.)"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from holdfast.code.keys import Namespace, SessionKey
from holdfast.engines.local.state import process_start
from holdfast.guest import protocol

from .conftest import Cli

pytestmark = pytest.mark.engines


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-r", "cobol", "-c", "x"], "invalid_request", "there are python, node, bash"),
        (["-c", ""], "invalid_request", "no code"),
        (["-c", " \n"], "invalid_request", "no code"),
        (["missing.py"], "invalid_request", "cannot read missing.py"),
        (["latin.py"], "invalid_request", "not UTF-8"),
        (["-f", "x=missing", "-c", "pass"], "invalid_request", "cannot read missing"),
        (["-f", "x=huge", "-c", "pass"], "file_too_large", "huge"),
        (["-f", "../x=small", "-c", "pass"], "path_not_allowed", "outside /work"),
        (["-f", "/etc/x=small", "-c", "pass"], "path_not_allowed", "outside /work"),
        (["--engine", "nope", "-c", "pass"], "invalid_request", "local"),
        (["--network", "-c", "pass"], "policy_error", "STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_run(cli: Cli, words: list[str], code: str, said: str) -> None:
    (cli.folder / "small").write_text("x")
    (cli.folder / "latin.py").write_bytes(b"print('\xe4')")
    with (cli.folder / "huge").open("wb") as file:
        file.truncate((256 << 20) + 1)
    told = cli.json("run", "--json", *words, status=125)
    assert (told["ok"], told["error_code"]) == (False, code)
    assert said in told["error"]
    plain = cli("run", *words)
    assert (plain.returncode, plain.stdout) == (125, "")
    assert plain.stderr == f"holdfast: {told['error']}\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--cwd", "missing", "--", "true"], "cwd_not_found", "missing"),
        (["--cwd", "/etc/passwd", "--", "true"], "cwd_not_a_directory", "/etc/passwd"),
        (["--", "nope"], "command_not_found", "nope"),
        (["-c", ""], "invalid_request", "empty"),
        (["-u", "nobody-at-all", "--", "true"], "user", "user"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exec(cli: Cli, words: list[str], code: str, said: str) -> None:
    cli.ok("open", "--session", "s")
    told = cli.json("exec", "--session", "s", "--json", *words, status=125)
    assert told["ok"] is False
    assert code in told["error_code"]
    assert said in told["error"]


def test_a_setting_that_is_wrong(cli: Cli) -> None:
    cli.env["STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS"] = "soon"
    told = cli.json("run", "--json", "-c", "pass", status=125)
    assert told["error_code"] == "config_error"
    assert told["error"].startswith("STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS: ")
    assert '"soon"' in told["error"]


def test_a_workspace_with_too_many_files(cli: Cli) -> None:
    cli.ok("open", "--session", "s")
    fill = "import itertools\ntry:\n  for i in itertools.count(): open(str(i), 'w').close()\nexcept OSError: pass"
    cli.ok("exec", "--session", "s", "--", "python3", "-c", fill)
    done = cli("cp", "--session", "s", "-", ":one-more", stdin="x")
    assert done.returncode == 125
    assert "one file too many" in done.stderr


def test_a_workspace_that_is_full(cli: Cli) -> None:
    cli.ok("open", "--session", "s", "--workspace-mb", "1")
    done = cli("cp", "--session", "s", "-", ":big", stdin=b"x" * 2_000_000)
    assert done.returncode == 125
    assert "full" in done.stderr or "space" in done.stderr
    assert cli.ok("ls", "--session", "s") == ""  # nothing, or all of it


def test_a_guest_of_another_version_is_refused_and_can_be_closed(cli: Cli) -> None:
    key = SessionKey(Namespace.CUSTOM, "s")
    cli.ok("open", "--session", "real")
    sessions = Path(cli.env["HOLDFAST_STATE_DIR"], "sessions")
    record = json.loads(next(sessions.glob("*/record.json")).read_text())
    folder = sessions / key.sandbox_name
    folder.mkdir()
    with (
        subprocess.Popen(["sleep", "1000"]) as stranger,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        listener.bind(str(folder / "sock"))
        listener.listen()
        threading.Thread(target=_greet, args=(listener,), daemon=True).start()
        mine = {"name": key.sandbox_name, "pid": stranger.pid, "pid_start": process_start(stranger.pid)}
        (folder / "record.json").write_text(json.dumps({**record, **mine, "labels": key.labels()}))
        try:
            told = cli.json("exec", "--session", "s", "--json", "--", "true", status=125)
            cli.ok("close", "--session", "s")
        finally:
            stranger.kill()
            listener.shutdown(socket.SHUT_RDWR)
    assert told["error_code"] == "protocol_mismatch"
    assert "close the session and open it again" in told["error"]
    assert [one["id"] for one in cli.json("ps", "--json")["sessions"]] == ["real"]


def _greet(listener: socket.socket) -> None:
    """A guest from the future, for whoever comes."""
    hello = {"protocol": 99, "window": 1 << 20, "features": [], "workspace": "/workspace", "arch": "amd64"}
    payload = json.dumps(hello).encode()
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller, contextlib.suppress(OSError):  # some only look whether anybody listens
            caller.sendall(protocol.HEADER.pack(len(payload), 0, protocol.Kind.MESSAGE) + payload)
            while caller.recv(65536):
                pass

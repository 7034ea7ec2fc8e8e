"""`holdfast mcp` as a person meets it: what it says, what it refuses, and what its help promises."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.mcp import command as mcp_command

from .mcp_host import HOLDFAST, PATIENCE, serving, started

pytestmark = [pytest.mark.engines, pytest.mark.parametrize("engine", ["local"], indirect=True)]
STRONG = "0123456789abcdef"


def refused(*words: str, token: str = "") -> str:
    """What is said by a call that ends at once with our own status."""
    env = {**os.environ, "HOLDFAST_MCP_TOKEN": token}
    done = subprocess.run(
        [HOLDFAST, "mcp", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (125, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_examples_of_the_help_work(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(HOLDFAST).parent}:{os.environ['PATH']}")
    (tmp_path / "agent.prompt").write_text("---\nsandbox: python\n---\nYou compute.\n")
    (tmp_path / "coder.prompt").write_text("---\nsandbox:\n  mode: code\n---\nYou code.\n")
    told = subprocess.run([HOLDFAST, "mcp", "--help"], capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in told.partition("\nExamples:\n")[2].splitlines() if line.strip()]
    assert lines
    for line in lines:
        if "--http" in line:  # it does not end by itself; `serving` adds a port that is free
            with serving(*shlex.split(line)[2:]) as served:
                assert served.port
            continue
        done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        assert done.returncode == 0, line


def test_a_token_is_made_and_told_once_on_stderr(engine: str) -> None:
    with started(HOLDFAST, "mcp", "--http", "--port", "0") as process:
        assert process.stderr and process.stdout
        assert b"serving MCP at http://127.0.0.1:" in process.stderr.readline()
        token = process.stderr.readline().split()[-1]
        assert len(token) >= 32
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.terminate()
        assert process.wait(PATIENCE) == 143
        assert token not in process.stderr.read()
        assert process.stdout.read() == b""
    with serving() as other:
        assert other.token.encode() != token


def test_a_given_token_is_not_told(engine: str) -> None:
    with started(HOLDFAST, "mcp", "--http", "--port", "0", token=STRONG) as process:
        assert process.stderr
        assert b"serving MCP at http://127.0.0.1:" in process.stderr.readline()
        process.terminate()
        assert process.wait(PATIENCE) == 143
        assert process.stderr.read() == b""


def test_it_listens_only_where_it_is_safe(engine: str) -> None:
    assert "set HOLDFAST_MCP_TOKEN first" in refused("--http", "--port", "0", "--host", "0.0.0.0")
    assert "set HOLDFAST_MCP_TOKEN first" in refused("--http", "--port", "0", "--host", "192.0.2.1")
    assert "--allow-host NAME" in refused("--http", "--port", "0", "--host", "0.0.0.0", token=STRONG)
    assert "at least 16" in refused("--http", "--port", "0", token="short")
    assert "no space" in refused("--http", "--port", "0", token=f"{STRONG} {STRONG}")
    with serving("--host", "0.0.0.0", "--allow-host", "tools.example", token=STRONG) as served:
        assert _status(served.port, f"tools.example:{served.port}") == 406  # let in; it accepts no answer of ours
        assert _status(served.port, "tools.example") == 406
        assert _status(served.port, f"0.0.0.0:{served.port}") == 403
        assert _status(served.port, "other.example") == 403


def _status(port: int, host: str) -> int:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as stream:
        lines = ["POST /mcp HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {STRONG}", "Content-Length: 2"]
        stream.sendall("\r\n".join([*lines, "Content-Type: application/json", "", "{}"]).encode())
        return int(stream.recv(1000).split()[1])


def test_what_cannot_be_served_is_said(engine: str, tmp_path: Path) -> None:
    none, wrong = tmp_path / "none.prompt", tmp_path / "wrong.prompt"
    none.write_text("---\nmodel: any\n---\nYou talk.\n")
    wrong.write_text("---\nsandbox:\n  mod: code\n---\nYou code.\n")
    assert "no sandbox in its frontmatter" in refused(str(none))
    assert "wrong.prompt:3" in refused(str(wrong))
    assert "no sandbox in its frontmatter" in refused(str(none), "--http", "--port", "0")
    assert "cobol" in refused("--runtime", "cobol")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen at 127.0.0.1" in refused("--http", "--port", str(taken.getsockname()[1]))
    for words, said in ((["x.prompt", "--mode", "code"], "FILE says both itself"), (["--port", "0"], "are for --http")):
        done = subprocess.run([HOLDFAST, "mcp", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (2, True)


def test_a_missing_package_is_named_with_its_extra(engine: str) -> None:
    program = "import sys; sys.modules['mcp'] = None; from holdfast.cli import main; main()"
    for words in ([], ["--http"]):
        command = [sys.executable, "-c", program, "mcp", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (125, "")
        assert "pip install 'holdfast[mcp]'" in done.stderr and "Traceback" not in done.stderr


def test_a_client_is_told_how_to_start_or_reach_it(engine: str, tmp_path: Path) -> None:
    def configuration(*words: str) -> dict[str, object]:
        command = [HOLDFAST, "mcp", *words, "--print-config"]
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        found: dict[str, object] = json.loads(told)["mcpServers"]["holdfast"]
        return found

    words = ["agent.prompt", "--workflow", "wf 1"]
    absolute = [str(tmp_path / "agent.prompt"), "--workflow", "wf 1"]
    assert configuration(*words) == {"command": "holdfast", "args": ["mcp", *absolute]}
    assert configuration("--http", "--port", "99", "--host", "::1") == {
        "type": "http",
        "url": "http://[::1]:99/mcp",
        "headers": {"Authorization": "Bearer ${HOLDFAST_MCP_TOKEN}"},
    }


def test_every_option_is_in_the_document(engine: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    for parameter in mcp_command.params:
        for name in parameter.opts:
            if name.startswith("--") and name != "--help":
                assert f"`{name}" in text, name

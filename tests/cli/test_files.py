from __future__ import annotations

import hashlib
import os
import pty
import subprocess

import pytest

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines


@pytest.fixture
def session(cli: Cli) -> Cli:
    cli.ok("open", "--session", "s")
    cli.env["HOLDFAST_SESSION"] = "s"
    return cli


def test_a_file_goes_in_and_comes_back(session: Cli) -> None:
    content = bytes(range(256)) * 40_000
    (session.folder / "a.bin").write_bytes(content)
    session.ok("cp", "a.bin", ":in/a.bin")
    told = session.ok("exec", "--", "sha256sum", "in/a.bin")
    assert told.split()[0] == hashlib.sha256(content).hexdigest()
    session.ok("cp", ":in/a.bin", "b.bin")
    assert (session.folder / "b.bin").read_bytes() == content


def test_a_folder_as_target_keeps_the_name(session: Cli) -> None:
    (session.folder / "a.txt").write_text("a")
    session.ok("cp", "a.txt", ":")
    session.ok("cp", "a.txt", ":new/")
    session.ok("exec", "--", "mkdir", "there")
    session.ok("cp", "a.txt", ":there")
    assert session.ok("ls", "-R").split() == ["a.txt", "new/", "new/a.txt", "there/", "there/a.txt"]
    (session.folder / "back").mkdir()
    session.ok("cp", ":new/a.txt", "back")
    assert (session.folder / "back/a.txt").read_text() == "a"


def test_stdin_and_stdout_are_dashes(session: Cli) -> None:
    assert session.ok("cp", "-", ":greeting", stdin="hello") == ""
    assert session.ok("cp", ":greeting", "-") == "hello"
    assert session("cp", "-", ":", stdin="x").returncode == 2


def test_folders_are_copied_with_all_that_is_in_them(session: Cli) -> None:
    tree = session.folder / "tree"
    (tree / "sub/empty").mkdir(parents=True)
    (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "sub/b").write_text("b")
    (tree / "link").symlink_to("/etc/passwd")
    done = session("cp", "tree", ":tree")
    assert done.returncode == 0
    assert "skipped, not a regular file: tree/link" in done.stderr
    assert session.ok("exec", "--", "./tree/run.sh") == "ran\n"
    session.ok("exec", "-c", "ln -s /etc tree/etc; mkfifo tree/pipe")
    done = session("cp", ":tree", "copy")
    assert done.returncode == 0
    assert done.stderr.count("skipped") == 2
    copied = sorted(str(path.relative_to(session.folder / "copy")) for path in (session.folder / "copy").rglob("*"))
    assert copied == ["run.sh", "sub", "sub/b", "sub/empty"]
    session.ok("cp", ":tree/sub", "copy")  # into a folder that is there
    assert (session.folder / "copy/sub/b").read_text() == "b"


def test_a_large_copy_is_streamed(session: Cli) -> None:
    size = 150_000_000
    with (session.folder / "big").open("wb") as file:
        file.truncate(size)

    def peak(*words: str) -> int:
        process = session.start(*words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_maxrss

    (session.folder / "small").write_text("x")
    room = peak("cp", "small", ":small") + 40_000
    assert peak("cp", "big", ":big") < room
    assert peak("cp", ":big", "-") < room
    assert peak("cp", ":big", "back") < room
    assert (session.folder / "back").stat().st_size == size


def test_a_reader_that_goes_away_is_no_drama(session: Cli) -> None:
    session.ok("exec", "-c", "seq 1000000 > numbers")
    done = session.shell("holdfast cp :numbers - | head -n 1")
    assert (done.returncode, done.stdout, done.stderr) == (141, "1\n", "")


def test_ls_shows_any_name_without_driving_the_terminal(session: Cli) -> None:
    session.ok(
        "exec", "--", "python3", "-c", "import os; os.mkdir('d'); open('d/\\x1b[31m\\n', 'w'); open(b'd/\\xff', 'w')"
    )
    for words in (["ls", ":d"], ["ls", "-l", ":d"]):
        told = session.ok(*words)
        assert "\x1b" not in told
        assert r"\x1b[31m\x0a" in told
    assert len(session.json("ls", "--json", ":d")["entries"]) == 2


def test_ls_of_a_file_and_in_detail(session: Cli) -> None:
    session.ok("cp", "-", ":d/a", stdin="12345")
    assert session.ok("ls", ":d/a") == "d/a\n"
    told = session.ok("ls", "-l", ":d")
    for word in ("MODE", "-0644", "5 B", "d/a"):
        assert word in told
    (entry,) = session.json("ls", "--json", "d")["entries"]
    assert (entry["path"], entry["type"], entry["size_bytes"]) == ("d/a", "file", 5)


def test_rm(session: Cli) -> None:
    session.ok("exec", "-c", "mkdir -p d/e; touch a b d/e/f")
    session.ok("rm", ":a", "b")
    assert session("rm", ":d").returncode == 125
    session.ok("rm", "-r", ":d")
    assert session.ok("ls") == ""
    assert session("rm").returncode == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["cp", "a", "b"], 2, ":PATH"),
        (["cp", ":a", ":b"], 2, ":PATH"),
        (["cp", "missing", ":a"], 125, "missing: No such file"),
        (["cp", ":missing", "a"], 125, "missing"),
        (["cp", ":missing", "-"], 125, "missing"),
        (["cp", "here", ":../out"], 125, "workspace"),
        (["cp", "here", ":/etc/passwd"], 125, "workspace"),
        (["cp", ":../../etc/passwd", "-"], 125, "workspace"),
        (["ls", ":.."], 125, "workspace"),
        (["ls", ":missing"], 125, "missing"),
        (["rm", ":../x"], 125, "workspace"),
        (["rm", ":missing"], 125, "missing"),
        (["cp", ":here", "no/such/folder/x"], 125, "No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_copied(session: Cli, words: list[str], status: int, said: str) -> None:
    (session.folder / "here").write_text("x")
    session.ok("cp", "here", ":here")
    done = session(*words, timeout=PATIENCE)
    assert done.returncode == status, done
    assert said in done.stderr
    assert done.stdout == ""


def test_a_copy_that_takes_a_while_shows_how_far_it_is_to_somebody_who_looks(session: Cli) -> None:
    tree = session.folder / "many"
    tree.mkdir()
    for number in range(3000):
        (tree / str(number)).write_text("x")
    done = session("cp", "-r", "many", ":many")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ours, theirs = pty.openpty()
    for words in (("many", ":again"), (":many", "back")):
        process = session.start("cp", *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
        shown = b""
        while b"100%" not in shown:
            shown += os.read(ours, 4096)
        stdout, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stdout) == (0, b"")
        assert words[0].strip(":").encode() in shown
    os.close(ours)
    os.close(theirs)

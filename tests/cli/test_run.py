from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

import holdfast

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines


def test_code_runs_and_its_output_is_all_there_is(cli: Cli) -> None:
    done = cli("run", "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a.py", "print(6 * 7)"),
        ("a.sh", "echo $((6 * 7))"),
        ("a.js", "console.log(6 * 7)"),
        ("a.mjs", "import os from 'node:os'; console.log(os.EOL && 6 * 7)"),
    ],
)
def test_the_name_of_a_file_tells_its_runtime(cli: Cli, name: str, code: str) -> None:
    if "js" in name and not shutil.which("node"):
        pytest.skip("this machine has no node")
    (cli.folder / name).write_text(code)
    assert cli.ok("run", name) == "42\n"


def test_a_name_that_tells_nothing_needs_a_runtime(cli: Cli) -> None:
    (cli.folder / "script").write_text("echo $((6 * 7))")
    assert cli("run", "script").returncode == 2
    assert cli.ok("run", "-r", "bash", "script") == "42\n"


def test_code_from_stdin_leaves_no_stdin_to_the_program(cli: Cli) -> None:
    assert cli.ok("run", "-", stdin="import sys; print(repr(sys.stdin.read()))") == "''\n"


def test_stdin_goes_to_the_program(cli: Cli) -> None:
    assert cli.ok("run", "-r", "bash", "-c", "sort -r", stdin="a\nb\n") == "b\na\n"
    (cli.folder / "in.txt").write_text("from a file\n")
    assert cli.shell("holdfast run -r bash -c cat < in.txt").stdout == "from a file\n"
    assert cli.shell("holdfast run -r bash -c cat <&-").stdout == ""


def test_stdin_that_never_ends_does_not_keep_a_program_that_does_not_read_it(cli: Cli) -> None:
    with cli.start("run", "-c", "print('over')") as process:
        assert process.stdout and process.stdin
        assert process.stdout.read() == b"over\n"
        assert process.wait(PATIENCE) == 0  # and stdin is still open


def test_a_large_stdin_does_not_stay_in_memory(cli: Cli) -> None:
    def peak(size: int) -> int:
        with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as feeder:
            process = cli.start("run", "-r", "bash", "-c", "wc -c", stdin=feeder.stdout)
            assert process.stdout
            assert int(process.stdout.read()) == size
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
        return used.ru_maxrss

    assert peak(200_000_000) < peak(1) + 40_000


def test_output_is_live_in_both_directions(cli: Cli) -> None:
    code = "import sys\nprint('ready')\nfor line in sys.stdin:\n    print('got', line.strip(), file=sys.stderr)\n"
    with cli.start("run", "-c", code) as process:
        assert process.stdin and process.stdout and process.stderr
        for number in range(3):
            if number == 0:
                assert process.stdout.readline() == b"ready\n"  # while the program waits for us
            process.stdin.write(b"%d\n" % number)
            assert process.stderr.readline() == b"got %d\n" % number
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_output_is_bytes(cli: Cli) -> None:
    with cli.start("run", "-r", "bash", "-c", r"printf '\xff\x00\x1b['") as process:
        assert process.stdout
        assert process.stdout.read() == b"\xff\x00\x1b["


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-c", "pass"], 0, ""),
        (["-c", "raise SystemExit(3)"], 3, ""),
        (["-r", "bash", "-c", "kill -SEGV $$"], 139, ""),
        (["-r", "bash", "-c", "kill -KILL $$"], 137, ""),
        (["-t", "0.3", "-r", "bash", "-c", "sleep 1000"], 124, "timeout: the program was killed after 0.3 s"),
        (["--engine", "nope", "-c", "pass"], 125, "there is no engine 'nope'"),
        (["--image", "alpine", "--engine", "local", "-c", "pass"], 125, "is not allowed here"),
        (["--image", "ubuntu:22.04", "--engine", "local", "-c", "pass"], 125, "cannot do: images"),
        (["--network", "-c", "pass"], 125, "STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"),
        (["-t", "0", "-c", "pass"], 2, "not a positive number"),
        (["-t", "nan", "-c", "pass"], 2, "not a positive number"),
        ([], 2, "Say FILE, -c CODE, or -"),
        (["--what", "-c", "pass"], 2, "--what"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_status(cli: Cli, words: list[str], status: int, said: str) -> None:
    done = cli("run", *words)
    assert done.returncode == status, done
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


def test_arguments_and_environment_reach_the_program(cli: Cli) -> None:
    cli.env["FROM_HERE"] = "here"
    code = "import os, sys; print(sys.argv[1:], os.environ['A'], os.environ['FROM_HERE'])"
    told = cli.ok("run", "-c", code, "-e", "A=b=c", "-e", "FROM_HERE", "--", "-x", "--json", "two words")
    assert told == "['-x', '--json', 'two words'] b=c here\n"
    assert "FROM_HERE" not in cli.ok("run", "-c", "import os; print(os.environ)")
    (cli.folder / "a.py").write_text("import sys; print(sys.argv[1:])")
    assert cli.ok("run", "a.py", "one", "--", "-t") == "['one', '-t']\n"
    assert cli("run", "-e", "NOT_SET_HERE", "-c", "pass").returncode == 2
    assert cli("run", "-e", "=x", "-c", "pass").returncode == 2


def test_files_go_in_and_artifacts_come_out(cli: Cli) -> None:
    (cli.folder / "data.bin").write_bytes(b"\x00\xff" * 10)
    code = "import os; d = open('in/x', 'rb').read(); os.mkdir('out'); open('out/y', 'wb').write(d[::-1])"
    cli.ok("run", "-f", "in/x=data.bin", "-a", "out/*", "-o", "saved", "-c", code)
    assert (cli.folder / "saved/out/y").read_bytes() == b"\xff\x00" * 10
    assert cli.ok("run", "-f", "data.bin", "-c", "print(len(open('data.bin', 'rb').read()))") == "20\n"


def test_an_artifact_does_not_follow_a_link_of_the_host(cli: Cli, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (cli.folder / "saved").mkdir()
    (cli.folder / "saved/folder").symlink_to(outside)
    (cli.folder / "saved/file").symlink_to(outside / "file")
    done = cli("run", "-a", "**", "-o", "saved", "-r", "bash", "-c", "mkdir folder; echo x > folder/a")
    assert done.returncode == 125
    assert "outside" in done.stderr
    cli.ok("run", "-a", "file", "-o", "saved", "-r", "bash", "-c", "echo x > file")
    assert (cli.folder / "saved/file").read_text() == "x\n"
    assert not list(outside.iterdir())


def test_artifacts_that_are_not_saved_are_mentioned(cli: Cli) -> None:
    done = cli("run", "-a", "*.txt", "-r", "bash", "-c", "echo > a.txt")
    assert (done.returncode, done.stdout) == (0, "")
    assert "say -o DIR: a.txt" in done.stderr


def test_json_is_the_result_of_the_tool(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STATE_DIR", cli.env["HOLDFAST_STATE_DIR"])
    code = "import sys; print('out'); print('err', file=sys.stderr); open('a.txt', 'w').write('hi'); sys.exit(3)"
    told = cli.json("run", "--json", "-a", "*.txt", "-c", code, status=3)
    same = holdfast.run(code, artifacts=["*.txt"], engine="local").as_tool()
    assert told.keys() == same.keys()
    changing = {"duration_ms", "cpu_ms", "peak_memory_bytes"}
    assert {k: v for k, v in told.items() if k not in changing} == {k: v for k, v in same.items() if k not in changing}


def test_json_of_an_error(cli: Cli) -> None:
    told = cli.json("run", "--json", "-r", "cobol", "-c", "x", status=125)
    assert told.keys() == {"ok", "error", "error_code"}
    assert (told["ok"], told["error_code"]) == (False, "invalid_request")


def test_json_of_a_timeout_is_a_result(cli: Cli) -> None:
    told = cli.json("run", "--json", "-t", "0.3", "-r", "bash", "-c", "echo a; sleep 1000", status=124)
    assert (told["end_cause"], told["stdout"], told["error_code"]) == ("timeout", "a\n", "COMMAND_TIMEOUT")
    assert "error_code" not in cli.json("run", "--json", "-r", "bash", "-c", "exit 3", status=3)


def test_a_closed_pipe_is_no_drama(cli: Cli) -> None:
    done = cli.shell("holdfast run -r bash -c yes | head -n 1")
    assert (done.returncode, done.stdout, done.stderr) == (141, "y\n", "")


def test_verbose_tells_where_and_how_much(cli: Cli) -> None:
    done = cli("run", "-v", "-c", "print(1)", "--memory-mb", "123")
    assert done.stdout == "1\n"
    for word in ("python on local", "peak memory", "memory_mb 123"):
        assert word in done.stderr


def test_a_program_that_reaches_a_limit_is_told_so(cli: Cli) -> None:
    fill = "dd if=/dev/zero of=big bs=1M count=100 2>/dev/null"
    done = cli("run", "--workspace-mb", "4", "-r", "bash", "-c", fill)
    assert done.returncode == 1
    assert "disk_full" in done.stderr


def test_a_stalled_reader_does_not_stall_the_command(cli: Cli) -> None:
    """Also the twin of the broken pipe: who reads late gets all that fits."""
    with cli.start("run", "-r", "bash", "-c", "head -c 4000000 /dev/zero; echo end >&2") as process:
        assert process.stdout and process.stderr
        assert select.select([process.stdout], [], [], PATIENCE)[0]
        assert len(process.stdout.read()) == 4_000_000
        assert process.stderr.read() == b"end\n"
        assert process.wait(PATIENCE) == 0


def test_sizes_in_json_are_true_when_output_is_cut(cli: Cli) -> None:
    cli.env["STATION_SANDBOX_MAX_STDOUT_BYTES"] = "1000"
    told = cli.json("run", "--json", "-c", "print('x' * 99_999)")
    assert (told["truncated"], told["stdout_total_bytes"], len(told["stdout"])) == (True, 100_000, 1000)
    assert json.dumps(told["limits"]["max_stdout_bytes"]) == "1000"

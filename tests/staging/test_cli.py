"""The command line, with the real server: `stage`, `publish` and `files`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli  # a fixture

from .conftest import Outside

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.fixture
def demo(cli: Cli, outside: Outside) -> Iterator[Cli]:
    """A session of the workflow demo, and a store."""
    cli.env.update({name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_NATS_")})
    cli.env.update({name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_STAGING_")})
    cli.ok("open", "--workflow", "demo")
    cli.env["HOLDFAST_WORKFLOW"] = "demo"
    yield cli


async def test_a_user_s_file_comes_in_and_a_result_goes_out(demo: Cli, outside: Outside) -> None:
    bucket = await outside.make()
    await bucket.put("workflows/demo/data.csv", b"a,b\n1,2\n")
    assert demo.ok("stage", "data.csv", ":in/") == ""
    assert demo.ok("cp", ":in/data.csv", "-") == "a,b\n1,2\n"
    demo.ok("exec", "-c", "mkdir out; wc -l < in/data.csv > out/lines")
    assert demo.ok("publish", ":out/lines") == "workflows/demo/out/lines\n"
    assert (await bucket.get("workflows/demo/out/lines")).data == b"2\n"
    told = demo.json("publish", ":out/lines", "/shared/lines", "--json")
    digest = told.pop("digest")
    assert told == {
        "ok": True, "file_key": "/shared/lines", "bucket": outside.bucket, "path": "out/lines", "size_bytes": 2,
    }  # fmt: skip
    assert digest == (await outside.record("shared/lines"))["digest"]
    told = demo.json("stage", told["file_key"], ":again", "--json")
    assert (told["path"], told["size_bytes"], told["digest"]) == ("again", 2, digest)


async def test_a_run_takes_staged_files_and_says_what_it_published(demo: Cli, outside: Outside) -> None:
    bucket = await outside.make()
    await bucket.put("data.csv", b"a,b\n1,2\n")
    demo.env["STATION_SANDBOX_MAX_ARTIFACT_BYTES"] = "10"
    code = "open('big', 'w').write(open('in.csv').read() * 2)"
    done = demo("run", "--stage", "in.csv=data.csv", "-a", "big", "-c", code)
    assert done.returncode == 0 and "in the object store: big as runs/run-" in done.stderr, done
    (published,) = [file for file in await bucket.list() if file.name != "data.csv"]
    assert (await bucket.get(published.name)).data == b"a,b\n1,2\n" * 2
    assert demo("run", "--stage", "in.csv", "-c", code).returncode == 2


async def test_files_are_listed_with_size_and_age_and_removed(demo: Cli, outside: Outside) -> None:
    bucket = await outside.make()
    await bucket.put("workflows/demo/a", b"a" * 1500)
    await bucket.put("workflows/other/b", b"b")
    await bucket.put("shared/\x1b[31m", b"c")
    shown = demo.ok("files")
    assert "workflows/demo/a" in shown and "1.5 kB" in shown and "AGE" in shown and "other" not in shown
    (file,) = demo.json("files", "--json")["files"]
    assert (file["file_key"], file["size_bytes"]) == ("workflows/demo/a", 1500)
    del demo.env["HOLDFAST_WORKFLOW"]
    shown = demo.ok("files")
    assert r"shared/\x1b[31m" in shown and "workflows/other/b" in shown
    assert len(demo.json("files", "ls", "workflows/", "--json")["files"]) == 2
    demo.ok("files", "rm", "workflows/other/b")
    assert demo("files", "rm", "workflows/other/b").returncode == 125
    demo.ok("files", "rm", "--workflow", "demo", "a")
    assert [file["file_key"] for file in demo.json("files", "--json")["files"]] == [r"shared/\x1b[31m"]
    assert await outside.pieces() == 1
    assert demo("files", "rm").returncode == 2


async def test_examples_run(demo: Cli, outside: Outside) -> None:
    bucket = await outside.make()
    for name in ("workflows/demo/data.csv", "shared/model.bin"):
        await bucket.put(name, b"x")
    demo.ok("exec", "-c", "mkdir out; echo > out/report.pdf")
    for command in ("stage", "publish", "files"):
        lines = demo.ok(command, "--help").partition("\nExamples:\n")[2].split("\n")
        assert len([line for line in lines if line.strip()]) >= 3
        for line in filter(str.strip, lines):
            done = demo.shell(line)
            assert done.returncode == 0, (line, done.stderr)


MISTAKES = [
    (["stage", "missing", ":a"], 125, 'no staged file "workflows/demo/missing"'),
    (["stage", "../x", ":a"], 125, "not the key of a file"),
    (["stage", "there", ":../a"], 125, "workspace"),
    (["publish", ":missing"], 125, "missing"),
    (["publish", ":."], 125, "folder"),
    (["stage", "there"], 2, "PATH"),
    (["stage", "--bucket", "nobodys", "there", ":a"], 125, "in the bucket nobodys"),
]


async def test_mistakes_are_one_line(demo: Cli, outside: Outside) -> None:
    await (await outside.make()).put("workflows/demo/there", b"x")
    for words, status, said in MISTAKES:
        done = demo(*words)
        assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (status, True, False), done


async def test_without_a_store_it_says_what_to_set(demo: Cli) -> None:
    del demo.env["HOLDFAST_NATS_URL"]
    told = demo.json("files", "--json", status=125)
    assert told["error_code"] == "staging_unavailable" and "HOLDFAST_NATS_URL" in told["error"]


async def test_a_large_file_needs_no_memory(demo: Cli) -> None:
    demo.ok("close")
    demo.ok("open", "--workspace-mb", "1000")
    demo.ok("exec", "-c", "head -c 150M /dev/urandom > big; echo > small")

    def peak(*words: str) -> int:
        process = demo.start(*words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_maxrss

    room = peak("publish", ":small") + 60_000
    assert peak("publish", ":big") < room
    assert peak("stage", "big", ":back") < room
    demo.ok("exec", "--", "cmp", "big", "back")

"""Programs: what they are given, what they write, how they end."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator

import anyio
import pytest

from holdfast import EndCause, aio
from holdfast.abc import Capability

from .conftest import Open, ProbeArgv
from .requires import requires

pytestmark = pytest.mark.anyio

ODD = ["", " ", "a b", "'", '"', "\\", "$HOME", "*", "-rf", "line\nline", "tab\t", "ü", "🦀", "\udcff\udcfe"]


async def test_arguments_arrive_as_they_are(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("show", *ODD))
    assert [bytes.fromhex(line).decode("utf-8", "surrogateescape") for line in result.stdout.split("\n")] == ODD


async def test_a_string_is_a_line_with_quotes(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(shlex.join(probe("show", "a b", "c'd")))
    assert result.stdout.split("\n") == [b"a b".hex(), b"c'd".hex()]


@requires(Capability.REAL_PROCESSES)
async def test_a_line_has_the_shell(box: aio.Session) -> None:
    result = await box.exec("for n in 1 2 3; do echo $n; done | wc -l; echo no >&2; exit 7")
    assert (result.stdout.strip(), result.stderr, result.exit_code) == ("3", "no\n", 7)


@requires(Capability.REAL_PROCESSES)
async def test_a_list_has_no_shell(box: aio.Session) -> None:
    assert (await box.exec(["echo", "$HOME", "|", "cat"])).stdout == "$HOME | cat\n"


async def test_the_working_directory_is_the_workspace(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("where"))).stdout == box.effective.workspace


async def test_a_working_directory_can_be_relative_or_absolute(box: aio.Session, probe: ProbeArgv) -> None:
    await box.mkdir("in/side")
    wanted = f"{box.effective.workspace}/in/side"
    assert (await box.exec(probe("where"), cwd="in/side")).stdout == wanted
    assert (await box.exec(probe("where"), cwd=wanted)).stdout == wanted


@pytest.mark.parametrize("value", ["", "a b", "line\nA=B", "ü🦀", "x" * 100_000])
async def test_the_environment_arrives(box: aio.Session, probe: ProbeArgv, value: str) -> None:
    assert (await box.exec(probe("variable", "GIVEN"), env={"GIVEN": value})).stdout == value


async def test_the_environment_of_a_session_holds_for_each_program(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(env={"GIVEN": "session", "BOTH": "session"}) as box:
        assert (await box.exec(probe("variable", "GIVEN"), env={"BOTH": "exec"})).stdout == "session"
        assert (await box.exec(probe("variable", "BOTH"), env={"BOTH": "exec"})).stdout == "exec"
        assert (await box.exec(probe("variable", "BOTH"))).stdout == "session"


async def test_the_hosts_environment_stays_outside(
    monkeypatch: pytest.MonkeyPatch, open_session: Open, probe: ProbeArgv
) -> None:
    monkeypatch.setenv("HF_SECRET", "of the host")
    async with open_session() as box:
        assert (await box.exec(probe("variable", "HF_SECRET"))).stdout == "(none)"
        assert "/bin" in (await box.exec(probe("variable", "PATH"))).stdout


async def test_without_stdin_a_program_reads_its_end(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("cat"), timeout=20)
    assert (result.stdout, result.ok) == ("", True)


@pytest.mark.parametrize("size", [0, 1, 200_000, 3_000_000])
async def test_stdin_of_bytes(box: aio.Session, probe: ProbeArgv, size: int) -> None:
    data = (b"0123456789\0\xff" * (size // 12 + 1))[:size]
    result = await box.exec(probe("cat"), stdin=data, max_stdout_bytes=4_000_000)
    assert result.stdout_bytes == data


async def test_stdin_of_text(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("cat"), stdin="grüße\n")).stdout == "grüße\n"


async def test_stdin_of_a_stream_arrives_as_it_comes(box: aio.Session, probe: ProbeArgv) -> None:
    answered = anyio.Event()

    async def talk() -> AsyncIterator[bytes]:
        yield b"one\n"
        with anyio.fail_after(30):
            await answered.wait()  # the program answers before it has seen the end
        yield b"two\n"

    def heard(stream: str, data: bytes) -> None:
        if b"one" in data:
            answered.set()

    result = await box.exec(probe("lines"), stdin=talk(), on_output=heard)
    assert result.stdout == "ready\ngot one\ngot two\n"


async def test_stdin_that_nobody_reads_is_no_error(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("say", "done", "", 0), stdin=bytes(3_000_000), timeout=30)
    assert (result.stdout, result.ok) == ("done", True)


@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 137, 255])
async def test_an_exit_code_is_a_result(box: aio.Session, probe: ProbeArgv, code: int) -> None:
    result = await box.exec(probe("say", "", "OCI runtime exec failed: not found\n", code))
    assert (result.exit_code, result.signal, result.end_cause) == (code, None, EndCause.COMPLETED)
    assert result.ok == (code == 0)


@pytest.mark.parametrize("number", [6, 9, 11, 15])
async def test_a_signal_is_not_an_exit_code(box: aio.Session, probe: ProbeArgv, number: int) -> None:
    result = await box.exec(probe("die", number))
    assert (result.exit_code, result.signal, result.end_cause) == (None, number, EndCause.COMPLETED)
    assert not result.ok


async def test_stdout_and_stderr_are_apart(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("say", "out", "err", 0))
    assert (result.stdout, result.stderr) == ("out", "err")


async def test_every_byte_arrives(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("every_byte"))
    assert result.stdout_bytes == bytes(range(256))
    assert result.encoding == "utf-8-lossy"


async def test_a_cap_does_not_cut_a_character(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("wide", 100), max_stdout_bytes=30)
    assert (result.truncated, result.stdout_total_bytes, result.encoding) == (True, 400, "utf-8")
    assert set(result.stdout) == {"🦀"}


async def test_below_the_cap_everything_is_kept(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("flood", 100), max_stdout_bytes=100_000)
    assert (result.truncated, result.stdout_total_bytes) == (False, 100_000)
    assert result.stdout == "0123456789" * 10_000


async def test_above_the_cap_head_and_tail_are_kept_and_all_is_counted(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("flood", 5_000), max_stdout_bytes=1_001)
    assert (result.truncated, result.stdout_total_bytes) == (True, 5_000_000)
    head, tail = result.stdout_output.head, result.stdout_output.tail
    assert (head, tail) == (b"0123456789" * 50 + b"0", b"0123456789" * 50)
    assert result.stderr == "start\n", "a flood of stdout takes nothing from stderr"


async def test_a_cap_of_nothing_keeps_nothing(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("say", "out", "err", 0), max_stdout_bytes=0)
    assert (result.stdout, result.stdout_total_bytes, result.stderr, result.ok) == ("", 3, "err", True)


async def test_output_is_live(box: aio.Session, probe: ProbeArgv) -> None:
    heard: list[tuple[str, bytes]] = []
    result = await box.exec(probe("ticks", 4), on_output=lambda stream, data: heard.append((stream, data)))
    assert [(stream, data) for stream, data in heard] == [
        ("stdout", b"0\n"),
        ("stderr", b"1\n"),
        ("stdout", b"2\n"),
        ("stderr", b"3\n"),
    ]
    assert (result.stdout, result.stderr) == ("0\n2\n", "1\n3\n")


async def test_many_at_once_do_not_mix(box: aio.Session, probe: ProbeArgv) -> None:
    outputs: dict[int, str] = {}

    async def one(number: int) -> None:
        result = await box.exec(probe("say", f"{number} " * 1000, "", number))
        assert result.exit_code == number
        outputs[number] = result.stdout

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(one, number)
    assert outputs == {number: f"{number} " * 1000 for number in range(12)}


async def test_a_result_tells_what_it_cost(box: aio.Session, probe: ProbeArgv) -> None:
    result = await box.exec(probe("say", "", "", 0))
    assert result.duration_ms >= 0
    assert result.cpu_ms >= 0
    assert result.as_tool()["end_cause"] == "completed"

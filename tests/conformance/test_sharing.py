"""A started program belongs to its session: any client can read it, feed it, wait for it and kill it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from holdfast import EndCause, aio, errors
from holdfast.abc import Capability
from holdfast.results import OutputRead

from .conftest import Open, ProbeArgv
from .requires import requires

pytestmark = pytest.mark.anyio


async def read_until(process: aio.Process, wanted: bytes, since: int = 0) -> OutputRead:
    """Read from `since` until the output holds `wanted`; gives the last read."""
    data = b""
    with anyio.fail_after(60):
        while True:
            read = await process.read(since, wait=5)
            data += read.stdout
            since = read.next
            if wanted in data:
                return read
            assert not read.ended, f"it ended after {data!r}"


@pytest.fixture
async def pair(open_session: Open, workflow: str) -> AsyncIterator[tuple[aio.Session, aio.Session]]:
    """Two clients of one session."""
    async with open_session(workflow=workflow) as first, open_session(workflow=workflow) as second:
        assert (first.created, second.created) == (True, False)
        yield first, second
        await second.close()


Pair = tuple[aio.Session, aio.Session]


async def test_a_file_of_one_is_there_for_the_other(pair: Pair) -> None:
    await pair[0].write("shared.txt", "from the first")
    assert await pair[1].read_text("shared.txt") == "from the first"


async def test_another_client_reads_and_waits(pair: Pair, probe: ProbeArgv) -> None:
    started = await pair[0].start(probe("rest", 0.2))
    other = pair[1].process(started.id)
    result = await other.wait(60)
    assert (result.stdout, result.ok) == ("ready\nover\n", True)
    assert (await started.wait(60)).stdout == "ready\nover\n", "a result can be had twice"


async def test_a_program_goes_on_when_its_client_has_gone(pair: Pair, probe: ProbeArgv) -> None:
    first, second = pair
    started = await first.start(probe("lines"), stdin=True)
    await read_until(started, b"ready")
    await first.release()
    other = second.process(started.id)
    await other.write_stdin("one\n", close=True)
    result = await other.wait(60)
    assert (result.stdout, result.exit_code) == ("ready\ngot one\n", 0)


async def test_another_client_kills(pair: Pair, probe: ProbeArgv) -> None:
    started = await pair[0].start(probe("forever"))
    await read_until(started, b"ready")
    await pair[1].process(started.id).kill()
    result = await started.wait(60)
    assert (result.end_cause, result.signal, result.stdout) == (EndCause.KILLED, 9, "ready\n")


async def test_the_list_shows_what_runs_and_what_ended(pair: Pair, probe: ProbeArgv) -> None:
    ended = await pair[0].start(probe("say", "", "", 4))
    await ended.wait(60)
    running = await pair[0].start(probe("forever"))
    listed = {info.exec_id: info for info in await pair[1].processes()}
    assert listed[running.id].running
    assert listed[running.id].ended is None
    end = listed[ended.id].ended
    assert end is not None
    assert end.exit_code == 4
    assert not listed[ended.id].running
    await running.kill()


@requires(Capability.REAL_PROCESSES)
async def test_another_process_finds_the_session(open_session: Open, workflow: str) -> None:
    async with open_session(workflow=workflow) as box:
        await box.write("note", "hello")
        script = f"""if True:
            import holdfast
            with holdfast.open_session(workflow={workflow!r}, engine={box.effective.engine!r}, create=False) as box:
                print(box.created, box.read_text("note"))
                box.write("answer", "seen")
                print(box.start(["sleep", "3600"]).id)
        """
        ran = await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
            )
        )
        assert ran.returncode == 0, ran.stderr
        *said, exec_id = ran.stdout.split("\n")[:2]
        assert said == ["False hello"]
        assert await box.read_text("answer") == "seen"
        assert [info.running for info in await box.processes() if info.exec_id == exec_id] == [True]
        await box.close()


# --- reading


async def test_reading_goes_on_where_it_stopped(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("ticks", 6))
    chunks: list[tuple[str, bytes]] = []
    since, ended = 0, False
    with anyio.fail_after(60):
        while not ended:
            read = await started.read(since, wait=5)
            assert read.expired_bytes == 0
            for chunk in read.chunks:
                assert chunk.position == since
                since += len(chunk.data)
                chunks.append((chunk.stream, chunk.data))
            assert read.next == since
            ended = read.ended
    assert b"".join(data for _, data in chunks) == b"0\n1\n2\n3\n4\n5\n", "in the order of writing"
    assert b"".join(data for stream, data in chunks if stream == "stderr") == b"1\n3\n5\n"


async def test_reading_from_the_start_gives_the_same_again(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("say", "out", "err", 0))
    await started.wait(60)
    for _ in range(2):
        read = await started.read()
        assert (read.stdout, read.stderr, read.next, read.ended) == (b"out", b"err", 6, True)


async def test_reading_does_not_wait_unless_asked(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("forever"))
    position = (await read_until(started, b"ready\n")).next
    read = await started.read(position)
    assert (read.chunks, read.ended, read.next) == ((), False, position)
    await started.kill()
    read = await started.read(position, wait=30)
    assert (read.chunks, read.ended) == ((), True)


async def test_what_was_overwritten_is_counted(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("flood", 1_000), max_stdout_bytes=10_000)
    result = await started.wait(60)
    assert (result.stdout_total_bytes, len(result.stdout_bytes), result.truncated) == (1_000_000, 10_000, True)
    read = await started.read()
    assert (len(read.stdout), read.expired_bytes, read.ended) == (10_000, 990_000, True)
    assert read.next == 1_000_000 + len(b"start\n")


async def test_what_was_kept_has_no_gap(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("flood", 10), max_stdout_bytes=10_000)
    await started.wait(60)
    read = await started.read()
    assert (len(read.stdout), read.expired_bytes, read.ended) == (10_000, 0, True)


# --- stdin


async def test_stdin_in_pieces(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("lines"), stdin=True)
    await started.write_stdin("on")
    await started.write_stdin(b"e\n")
    await read_until(started, b"got one\n")
    await started.write_stdin("two", close=True)
    assert (await started.wait(60)).stdout == "ready\ngot one\ngot two"


async def test_stdin_that_was_closed_is_refused(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("cat"), stdin=True)
    await started.write_stdin("all", close=True)
    assert (await started.wait(60)).stdout == "all"
    with pytest.raises(errors.StdinClosed):
        await started.write_stdin("more")


async def test_stdin_that_was_not_asked_for_is_refused(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("forever"))
    with pytest.raises(errors.StdinClosed):
        await started.write_stdin("anything")
    await started.kill()


# --- waiting


async def test_waiting_has_a_limit_and_the_program_none(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("lines"), stdin=True)
    with pytest.raises(TimeoutError):
        await started.wait(0.1)
    await started.write_stdin("", close=True)
    assert (await started.wait(60)).ok


async def test_an_unknown_program_is_named(box: aio.Session) -> None:
    for attempt in (box.process("x999").read, box.process("x999").wait, box.process("x999").kill):
        with pytest.raises(errors.ExecNotFound, match="x999"):
            await attempt()


async def test_a_started_program_has_a_timeout_too(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("forever"), timeout=1)
    result = await started.wait(60)
    assert (result.end_cause, result.exit_code) == (EndCause.TIMEOUT, None)

"""Floods, bytes that are no text, readers that stall (T06–T08, T10, T11)."""

from __future__ import annotations

import os

import anyio
import pytest

from holdfast import EndCause
from tests.faults.host import Box, box, resident_kb

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]

FLOOD = "head -c {} /dev/zero | tr '\\0' {}"
# One byte on each stream in turn: the worst case for whoever keeps their order.
ALTERNATE = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.write(1, b"o")
    os.write(2, b"e")
"""
MB = 1 << 20


async def test_t06_stdin() -> None:
    async with box() as sandbox:
        with anyio.fail_after(30):
            assert (await sandbox.exec(["cat"])).stdout == ""  # none is /dev/null: no hang
            data = os.urandom(MB)
            echoed = await sandbox.exec(["cat"], stdin=data, max_stdout_bytes=2 * MB)
            assert echoed.stdout_bytes == data
            ignored = await sandbox.exec(["true"], stdin=b"x" * (8 * MB))
            assert ignored.ok
            stuck = await sandbox.exec(["sleep", "60"], stdin=b"x" * (8 * MB), timeout=1)
            assert stuck.end_cause is EndCause.TIMEOUT
        await sandbox.empty()


async def test_t06_large_stdin_of_many_execs_at_once() -> None:
    """Who feeds and who collects share a call, and all calls share one connection."""
    async with box() as sandbox:

        async def echo(size: int) -> None:
            result = await sandbox.exec("cat | wc -c", stdin=b"y" * size)
            assert result.stdout.strip() == str(size)

        with anyio.fail_after(60):
            for _ in range(5):
                async with anyio.create_task_group() as tasks:
                    for at in range(8):
                        tasks.start_soon(echo, (at + 1) * MB)


async def test_t07_a_flood_is_capped_counted_and_costs_the_client_nothing() -> None:
    async with box() as sandbox:
        await sandbox.works()
        before = resident_kb()
        total, cap = 200_000_000, MB
        result = await sandbox.exec(FLOOD.format(total, "x"), timeout=80, max_stdout_bytes=cap)
        assert resident_kb() - before < 20_000
        assert (result.stdout_total_bytes, result.truncated, result.exit_code) == (total, True, 0)
        assert result.stdout_bytes == b"x" * cap
        within = await sandbox.exec(FLOOD.format(cap, "y"), max_stdout_bytes=cap)
        assert (within.stdout_bytes, within.truncated) == (b"y" * cap, False)


async def test_t07_a_live_flood_keeps_first_and_last() -> None:
    async with box() as sandbox:
        seen = 0

        def count(stream: str, data: bytes) -> None:
            nonlocal seen
            seen += len(data)

        before = resident_kb()
        command = f"printf first; {FLOOD.format(100_000_000, 'x')}; printf last"
        result = await sandbox.exec(command, timeout=80, max_stdout_bytes=1000, on_output=count)
        assert resident_kb() - before < 20_000
        assert result.stdout_total_bytes == 100_000_009 and seen <= 100_000_009
        assert len(result.stdout_bytes) == 1000
        assert result.stdout.startswith("first") and result.stdout.endswith("last")


async def test_a_live_caller_that_keeps_nothing_still_sees_the_end() -> None:
    async with box() as sandbox:
        for cap in (0, 1, 2, 1000):
            with anyio.fail_after(30):
                result = await sandbox.exec(
                    f"echo x; {FLOOD.format(100_000, 'x')}; echo y >&2",
                    timeout=20,
                    max_stdout_bytes=cap,
                    max_stderr_bytes=cap,
                    on_output=lambda stream, data: None,
                )
            assert (result.end_cause, result.stdout_total_bytes) == (EndCause.COMPLETED, 100_002)
            assert len(result.stdout_bytes) <= cap


async def test_t08_stdout_does_not_starve_stderr() -> None:
    async with box() as sandbox:
        result = await sandbox.exec(f"{FLOOD.format(50_000_000, 'x')}; echo here >&2", timeout=80)
        assert (result.stderr, result.stdout_total_bytes) == ("here\n", 50_000_000)


async def alternate(sandbox: Box, count: int) -> None:
    command = ["python3", "-c", ALTERNATE, str(count)]
    result = await sandbox.exec(command, timeout=80)
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (count, count)
    assert set(result.stdout) == {"o"} and set(result.stderr) == {"e"}
    live: list[str] = []
    result = await sandbox.exec(command, timeout=80, on_output=lambda name, data: live.append(name))
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (count, count)
    assert set(live) == {"stdout", "stderr"}
    started = await sandbox.session.start(command, timeout=80)
    result = await started.wait(80)
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (count, count)
    read = await started.read()
    assert {chunk.stream for chunk in read.chunks} == {"stdout", "stderr"}
    await sandbox.works()


async def test_both_streams_byte_by_byte() -> None:
    """Every way to get the output: at the end, live, and by position."""
    async with box() as sandbox:
        await alternate(sandbox, 100)
        with anyio.fail_after(80):
            await alternate(sandbox, 100_000)


async def test_t10_bytes_are_kept_and_text_is_valid() -> None:
    async with box() as sandbox:
        every = bytes(range(256))
        result = await sandbox.exec(["cat"], stdin=every)
        assert (result.stdout_bytes, result.encoding) == (every, "utf-8-lossy")
        text = "\N{GRINNING FACE}" * 100
        for cap in range(8, 17):
            cut = await sandbox.exec(["cat"], stdin=text, max_stdout_bytes=cap)
            assert set(cut.stdout) <= {"\N{GRINNING FACE}"} and cut.encoding == "utf-8"
            assert (len(cut.stdout_bytes), cut.truncated) == (cap, True)
        whole = await sandbox.exec(["cat"], stdin=text)
        assert (whole.stdout, whole.truncated, whole.encoding) == (text, False, "utf-8")


async def test_t11_a_client_that_does_not_read_cannot_stop_the_clock() -> None:
    async with box() as sandbox, box() as other:
        flood = FLOOD.format(100_000_000_000, "x")
        stalled = anyio.Event()

        async def stall(stream: str, data: bytes) -> None:
            stalled.set()
            await anyio.sleep(6)  # nobody takes a frame from this call meanwhile

        async def live() -> None:
            result = await sandbox.exec(flood, timeout=2, on_output=stall)
            assert result.end_cause is EndCause.TIMEOUT

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live)
            await stalled.wait()
            await sandbox.works()  # on the same connection
            await other.works()
            await sandbox.until(lambda: not sandbox.running("/dev/zero"), "the flood has ended", 10)
            tasks.cancel_scope.cancel()
        await sandbox.works()


async def test_what_a_reader_missed_is_told() -> None:
    async with box() as sandbox:
        total = 1_000_000
        started = await sandbox.session.start(FLOOD.format(total, "x"), max_stdout_bytes=1000)
        assert (await started.wait(30)).stdout_total_bytes == total
        read = await started.read()
        assert len(read.stdout) + read.expired_bytes == total == read.next
        assert len(read.stdout) == 1000
        middle = await started.read(600)
        assert len(middle.stdout) == 500 and middle.expired_bytes == total - 1100 and middle.ended


async def test_output_after_the_end_of_the_main_process_is_no_hang() -> None:
    """A process that was killed holds no pipe; one in another exec that got it does not either."""
    async with box() as sandbox:
        hold = (
            "import socket,os,array,time; s=socket.socket(1,1); s.bind('/tmp/s'); s.listen(); print('up', flush=True)\n"
        )
        hold += "c,_=s.accept(); f=socket.recv_fds(c,1,1)[1][0]\nwhile 1: os.write(f,b'z'); time.sleep(0.001)"
        pass_on = "import socket; c=socket.socket(1,1); c.connect('/tmp/s'); socket.send_fds(c,[b'x'],[1])"
        holder = await sandbox.session.start(["python3", "-c", hold], timeout=60)
        await sandbox.said(holder, b"up")
        with anyio.fail_after(20):
            result = await sandbox.exec(["python3", "-c", pass_on], timeout=60)
        assert result.exit_code == 0
        await holder.kill()

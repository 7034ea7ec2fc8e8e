"""Memory, processes, processor: the kernel holds them, the result says so, and the session goes on (T14–T16)."""

from __future__ import annotations

import os
import time

import anyio
import pytest

from holdfast import EndCause, ExecResult, errors
from tests.faults.host import Box, box, look_at, small

pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.timeout(90),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make the cgroups that hold these limits"),
]

EAT = "import sys; data = [bytearray(1 << 20) for _ in range(int(sys.argv[1]))]; print(len(data))"
BOMB = """
import os, time
refused = 0
end = time.monotonic() + 3
while time.monotonic() < end:
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
    except BlockingIOError:
        refused += 1
        time.sleep(0.01)
print("refused", refused > 0)
"""


async def eaten(sandbox: Box, megabytes: int) -> ExecResult:
    return await sandbox.exec(["python3", "-c", EAT, str(megabytes)], timeout=60)


async def test_t14_memory_over_the_limit_is_oom_and_the_next_exec_works() -> None:
    async with box(limits=small(memory_mb=64, workspace_mb=8)) as sandbox:
        for _ in range(5):
            result = await eaten(sandbox, 1000)
            assert (result.end_cause, result.signal, result.ok) == (EndCause.OOM, 9, False), result.as_tool()
            await sandbox.works()
        within = await eaten(sandbox, 30)
        assert (within.stdout, within.end_cause) == ("30\n", EndCause.COMPLETED)


async def test_t14_a_child_that_runs_out_of_memory() -> None:
    async with box(limits=small(memory_mb=64, workspace_mb=8)) as sandbox:
        script = f"python3 -c '{EAT}' 1000; echo $?; exit 1"
        failed = await sandbox.exec(script, timeout=60)
        assert (failed.end_cause, failed.exit_code, failed.stdout) == (EndCause.OOM, 1, "137\n")
        survived = await sandbox.exec(f"python3 -c '{EAT}' 1000; echo fine", timeout=60)
        assert (survived.end_cause, survived.stdout) == (EndCause.COMPLETED, "fine\n")  # it got over it
        by_itself = await sandbox.exec("kill -9 $$")
        assert by_itself.end_cause is EndCause.COMPLETED  # no memory was lacking


async def test_t14_the_guest_is_never_the_victim() -> None:
    async with box(limits=small(memory_mb=32, workspace_mb=8)) as sandbox:
        for _ in range(10):
            many = "for i in 1 2 3 4 5 6; do python3 -c '{}' 500 & done; wait; exit 1"
            await sandbox.exec(many.format(EAT), timeout=60)
            await sandbox.works()


async def test_t15_a_fork_bomb_stays_in_its_sandbox() -> None:
    async with box(limits=small(processes=64)) as sandbox, box() as other:
        counts: list[int] = []

        async def bomb() -> None:
            result = await sandbox.exec(["python3", "-c", BOMB], timeout=60)
            assert result.stdout == "refused True\n", result.as_tool()
            assert not sandbox.programs()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bomb)
            await sandbox.until(lambda: len(sandbox.programs()) > 40, "the bomb has gone off")
            for _ in range(5):
                counts.append(len(sandbox.programs()))
                with anyio.fail_after(30):
                    await other.works()
                # here: a result, whatever it is, and no error
                result = await sandbox.exec(["true"], timeout=20)
                assert result.ok or result.end_cause is EndCause.PIDS_LIMIT
        assert max(counts) <= 64 + 104
        await sandbox.works()


async def test_t15_a_fork_bomb_that_ends_at_its_timeout() -> None:
    async with box(limits=small(processes=64)) as sandbox:
        for script in (":(){ :|:& };:; sleep 60", "while :; do sleep 60 & done"):
            result = await sandbox.exec(["bash", "-c", script], timeout=2)
            assert not result.ok
            await sandbox.empty(within=5)
            await sandbox.works()


async def test_t15_the_guest_works_at_the_process_limit() -> None:
    """Many calls at once need threads of the guest, and there is none to be had."""
    async with box(limits=small(processes=64, max_files=2000)) as sandbox:
        await sandbox.session.write("file", "x" * 100_000)
        endless = BOMB.replace("+ 3", "+ 60")
        bomb = await sandbox.session.start(["python3", "-c", endless], timeout=60)
        await sandbox.until(lambda: len(sandbox.programs()) > 60, "the limit is reached")
        pid = sandbox.pid

        async def work(number: int) -> None:
            await sandbox.session.write(f"many/{number}", "y" * 50_000)
            assert len(await sandbox.session.read("file")) == 100_000
            await sandbox.session.list(recursive=True)
            ended = await sandbox.exec(["true"], timeout=30)
            assert ended.ok or ended.end_cause in (EndCause.PIDS_LIMIT, EndCause.TIMEOUT), ended.as_tool()

        with anyio.fail_after(60):
            for _ in range(3):
                async with anyio.create_task_group() as tasks:
                    for number in range(100):
                        tasks.start_soon(work, number)
        assert look_at(pid) is not None
        await bomb.kill()
        assert not sandbox.programs()
        await sandbox.works()


async def test_many_execs_at_once() -> None:
    """Supervisors take of the sandbox's processes; when there are none left, that is a result."""
    async with box() as sandbox:
        causes: list[EndCause] = []

        async def one() -> None:
            causes.append((await sandbox.exec(["sleep", "0.5"], timeout=60)).end_cause)

        for count in (25, 100):
            causes.clear()
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(one)
            if count == 25:
                assert causes == [EndCause.COMPLETED] * 25
            assert set(causes) <= {EndCause.COMPLETED, EndCause.PIDS_LIMIT}
        await sandbox.works()


async def test_t16_the_processor_is_shared_out() -> None:
    async with box(limits=small(cpu_millicores=250)) as sandbox:
        result = await sandbox.exec("while :; do :; done", timeout=3)
        assert result.end_cause is EndCause.TIMEOUT
        # 0.25 of a processor for 3 s, and what one period may be over
        assert result.cpu_ms < 1500, result.cpu_ms
    async with box(limits=small(cpu_millicores=2000)) as sandbox:
        result = await sandbox.exec("while :; do :; done", timeout=2)
        assert result.cpu_ms > 0


async def test_limits_are_what_the_host_holds() -> None:
    limits = small(memory_mb=100, workspace_mb=20, processes=33, cpu_millicores=500)
    async with box(limits=limits) as sandbox:
        folders = sandbox.cgroups
        if "memory" not in folders:
            pytest.skip("cgroup version 2 has other files")
        held = int((folders["memory"] / "memory.limit_in_bytes").read_text())
        assert 120 << 20 <= held <= 220 << 20
        assert 33 <= int((folders["pids"] / "pids.max").read_text()) <= 33 + 104
        assert str(sandbox.pid) in (folders["memory"] / "cgroup.procs").read_text().split()
        for name in ("memory_mb", "processes", "cpu_millicores", "workspace_mb"):
            assert sandbox.session.effective.limits[name] == getattr(limits, name)
        # beside the workspace a container of `standard` may fill the disk, on storage without quotas
        assert set(sandbox.session.effective.not_held) <= {"root_file_system_mb"}


async def test_files_of_one_process_and_size_of_one_file() -> None:
    async with box(limits=small(open_files=64, max_file_size_bytes=1 << 20)) as sandbox:
        opened = "import os\nn=0\ntry:\n while True: os.dup(0); n+=1\nexcept OSError: print(n)"
        result = await sandbox.exec(["python3", "-c", opened])
        assert 50 < int(result.stdout) <= 64
        large = await sandbox.exec("head -c 2000000 /dev/zero > f")
        assert not large.ok and (await sandbox.session.stat("f")).size_bytes <= 1 << 20
        with pytest.raises(errors.FileTooLarge):
            await sandbox.session.write("g", b"x" * ((1 << 20) + 1))
        await sandbox.session.write("g", b"x" * (1 << 20))
        raised = await sandbox.exec("ulimit -n 5000 2>/dev/null || ulimit -f unlimited 2>/dev/null || echo no")
        assert raised.stdout == "no\n"
        began = time.monotonic()
        assert (await sandbox.exec("head -c 900000 /dev/zero > h")).ok
        assert time.monotonic() - began < 30

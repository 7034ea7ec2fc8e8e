"""Nothing survives its exec, whatever it does to get away (T01–T05, T17)."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import anyio
import pytest

from holdfast import EndCause, errors
from tests.faults.host import Box, box

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for fd in range(3): os.close(fd)
time.sleep(300)
"""

# Every generation forks its successor and dies: no list of processes is ever current.
CHAIN = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0: break
else:
    time.sleep(300)
os.setsid()
while True:
    if os.fork(): os._exit(0)
"""


async def timed_out(sandbox: Box, command: str | list[str], timeout: float = 1) -> str:
    begun = time.monotonic()
    result = await sandbox.exec(command, timeout=timeout)
    assert result.end_cause is EndCause.TIMEOUT, result.as_tool()
    assert not result.ok
    assert time.monotonic() - begun < 30
    await sandbox.empty(within=2)
    return result.stdout


async def test_t01_a_program_ends_at_its_timeout_and_keeps_its_output() -> None:
    async with box() as sandbox:
        assert await timed_out(sandbox, "echo partial; sleep 60") == "partial\n"
        await sandbox.works()
        result = await sandbox.exec("echo whole; sleep 0.1", timeout=20)
        assert (result.stdout, result.end_cause) == ("whole\n", EndCause.COMPLETED)


async def test_t02_ignored_signals_do_not_help() -> None:
    async with box() as sandbox:
        await timed_out(sandbox, "trap '' TERM HUP INT QUIT; while :; do sleep 1; done")
        await sandbox.works()


async def test_t03_daemons_die_with_their_exec_at_its_timeout() -> None:
    async with box() as sandbox:
        await sandbox.session.write("daemon.py", DAEMON)
        command = "setsid sleep 301 & nohup sleep 302 >/dev/null 2>&1 & python3 daemon.py; sleep 303"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timed_out, sandbox, command, 2)
            markers = ("sleep\x00301", "sleep\x00302", "sleep\x00303", "daemon.py")
            await sandbox.until(lambda: all(sandbox.running(marker) for marker in markers), "all daemons run")
        await sandbox.works()


async def test_t03_daemons_die_when_the_main_process_ends() -> None:
    async with box() as sandbox:
        await sandbox.session.write("daemon.py", DAEMON)
        for _ in range(10):
            result = await sandbox.exec("python3 daemon.py; setsid sleep 301 & exit 3", timeout=20)
            assert (result.exit_code, result.end_cause) == (3, EndCause.COMPLETED)
            assert not sandbox.programs()
            assert result.left_count >= 2 and "python3" in result.left_processes
        # kept when that is asked for, and then the exec goes on
        kept = await sandbox.session.start("setsid sleep 301 & exit 0", keep_background=True, timeout=30)
        await anyio.sleep(0.3)
        assert sandbox.running("301")
        await kept.kill()
        assert not sandbox.programs()


async def test_t03_chains_that_fork_for_ever_are_caught() -> None:
    async with box() as sandbox:
        await sandbox.session.write("chain.py", CHAIN)
        for width in (1, 4, 16):
            await timed_out(sandbox, ["python3", "chain.py", str(width)], 1)
            await sandbox.works()


FAST_CHAIN = """
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int leave = argv[2][0] == 's', kill_first = argv[3][0] == 'k';
    pid_t parent = getppid();
    for (int n = atoi(argv[1]); n > 0; n--) if (fork() == 0) goto chain;
    if (kill_first) { usleep(100000); kill(parent, SIGKILL); }
    if (argv[4][0] == 'e') return 0;
    sleep(300);
chain:
    for (;;) { if (leave) setsid(); if (fork() > 0) _exit(0); }
}
"""


@pytest.fixture(scope="module")
def fast_chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    (folder / "chain.c").write_text(FAST_CHAIN)
    command = ["gcc", "-O2", "-static", "-o", str(folder / "chain"), str(folder / "chain.c")]
    if not shutil.which("gcc") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no C compiler, or no static libc")
    return folder / "chain"


@pytest.mark.parametrize("leave", ["stay", "setsid"])
async def test_t03_the_fastest_chains_are_caught(fast_chain: Path, leave: str) -> None:
    """A generation lives for a tenth of a millisecond; at the end nothing is left, also in the next seconds."""
    async with box() as sandbox:
        await sandbox.session.upload(fast_chain, "chain", mode=0o755)
        for width in (1, 3, 20, 60):
            await timed_out(sandbox, ["./chain", str(width), leave, "-", "-"], 0.5)
            try:
                killer = await sandbox.exec(["./chain", str(width), leave, "kill", "-"], timeout=10)
                assert killer.end_cause is EndCause.LOST
            except errors.SessionLost:
                assert sandbox.uid == 0  # what kills everything at once as root kills the way in, too
            by_itself = await sandbox.exec(["./chain", str(width), leave, "-", "end"], timeout=20)
            assert (by_itself.end_cause, by_itself.exit_code) == (EndCause.COMPLETED, 0)
            await anyio.sleep(0.2)
            assert not sandbox.programs()
        await sandbox.works()


async def test_t04_a_background_process_does_not_delay_the_result() -> None:
    async with box() as sandbox:
        for _ in range(20):
            begun = time.monotonic()
            result = await sandbox.exec("sleep 30 & echo hi", timeout=60)
            assert (result.stdout, result.exit_code, result.left_count) == ("hi\n", 0, 1)
            assert result.left_processes in (("sleep",), ("sh",))
            assert time.monotonic() - begun < 20
            assert not sandbox.programs()
        none_left = await sandbox.exec("sleep 0.01 & wait; echo hi")
        assert none_left.left_count == 0


async def test_t05_cancelling_the_call_kills_the_tree() -> None:
    async with box() as sandbox:
        for round_ in range(50):
            with anyio.move_on_after(0.001 * (round_ % 10) + (0.2 if round_ == 0 else 0)) as scope:
                await sandbox.exec("setsid sleep 301 & trap '' TERM; sleep 302; sleep 303", timeout=60)
            assert scope.cancelled_caught
            await sandbox.empty(within=2)
        await sandbox.works()
        assert not [info for info in await sandbox.session.processes() if info.running]


async def test_t17_a_late_kill_hits_nobody_else() -> None:
    """A finished exec is killed again and again while its supervisor and its pids are used by others."""
    async with box() as sandbox:
        finished = await sandbox.session.start(["true"])
        await finished.wait(10)
        bystander = await sandbox.session.start("echo alive; exec sleep 305", timeout=60)

        async def strike() -> None:
            for _ in range(100):
                await finished.kill()
                await finished.kill(15)

        async def churn() -> None:
            for _ in range(25):
                result = await sandbox.exec("for i in 1 2 3 4 5 6 7 8; do /bin/true & done; wait; echo ok")
                assert (result.stdout, result.ok) == ("ok\n", True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(strike)
            tasks.start_soon(churn)
            tasks.start_soon(churn)
        assert sandbox.running("305")
        await bystander.kill()
        assert not sandbox.running("305")


async def test_a_signal_reaches_every_process_of_the_exec_and_no_other() -> None:
    async with box() as sandbox:
        other = await sandbox.session.start("trap 'echo hit' USR1; echo up; while :; do sleep 0.05; done")
        mine = await sandbox.session.start(
            "sh -c \"trap 'echo child' USR1; echo up; while :; do sleep 0.05; done\" & "
            "trap 'echo parent' USR1; echo up; while :; do sleep 0.05; done"
        )
        await sandbox.said(other, b"up")
        await sandbox.said(mine, b"up", 2)
        await mine.kill(10)
        await sandbox.said(mine, b"child")
        await sandbox.said(mine, b"parent")
        assert b"hit" not in (await other.read()).stdout
        for process in (mine, other):
            await process.kill()
        assert (await mine.wait(10)).end_cause is EndCause.KILLED
        assert not sandbox.programs()

"""Programs that attack what watches them: signals to supervisors and to PID 1, forged frames, open windows."""

from __future__ import annotations

import ast
import time

import anyio
import pytest

from holdfast import EndCause, ExecResult, errors
from holdfast.engines.docker import near
from tests.faults.conftest import far
from tests.faults.host import Box, box, confined, every

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]


async def ended(sandbox: Box, command: str | list[str], timeout: float = 1) -> ExecResult:
    """The exec ends near its timeout at the latest, and nothing of it lives on."""
    begun = time.monotonic()
    with anyio.fail_after(30):
        result = await sandbox.exec(command, timeout=timeout)
    assert time.monotonic() - begun < timeout + 9  # the client gives a guest ten seconds before it calls it lost
    await sandbox.empty(within=3)
    return result


@pytest.mark.parametrize("delay", ["", "sleep 0.2; "])
async def test_a_stopped_supervisor_does_not_stop_the_clock(delay: str) -> None:
    async with box() as sandbox:
        for _ in range(3):
            result = await ended(sandbox, f"{delay}echo before; kill -STOP $PPID; sleep 300")
            assert result.end_cause is EndCause.TIMEOUT
            assert result.stdout == "before\n"
        await sandbox.works()


@pytest.mark.parametrize("delay", ["", "sleep 0.2; "])
async def test_a_killed_supervisor_is_lost_and_never_success(delay: str) -> None:
    async with box() as sandbox:
        for _ in range(25):
            command = f"echo x >> runs; {delay}echo before; kill -9 $PPID; setsid sleep 301 & exit 0"
            result = await ended(sandbox, command, 20)
            assert (result.end_cause, result.exit_code, result.ok) == (EndCause.LOST, None, False)
        # never a second time: a program has effects
        assert await sandbox.session.read_text("runs") == "x\n" * 25
        await sandbox.works()


@confined()
async def test_kill_everything_leaves_the_session_and_no_false_success() -> None:
    async with box() as sandbox:
        for _ in range(10):
            neighbour: list[ExecResult] = []

            async def wait(into: list[ExecResult]) -> None:
                into.append(await sandbox.exec("sleep 300; echo survived", timeout=60))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, neighbour)
                await sandbox.until(lambda: sandbox.running("sleep"), "the neighbour runs")
                await ended(sandbox, ["bash", "-c", "kill -9 -1; sleep 0.5"], 20)
            assert not neighbour[0].ok
            assert neighbour[0].end_cause in (EndCause.LOST, EndCause.COMPLETED)
            assert neighbour[0].exit_code != 0
            assert "survived" not in neighbour[0].stdout
            await sandbox.works()


@confined()
async def test_stopped_supervisors_in_waiting_do_not_stop_the_next_exec() -> None:
    """Idle supervisors belong to the same user: a program stops every one that it finds."""
    async with box() as sandbox:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(sandbox.exec, ["sleep", "0.1"])
            assert len(sandbox.supervisors()) >= 2
            await ended(sandbox, ["bash", "-c", "kill -STOP -1; sleep 300"], 1)
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(sandbox.works)


STOPPER = """
import os
while True:
    try: os.kill(-1, 19)
    except OSError: pass
"""


@confined()
async def test_a_program_that_stops_everything_for_ever_ends_at_its_timeout() -> None:
    """New supervisors are stopped too, some between fork and exec: PID 1 must not wait for them."""
    async with box() as sandbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, sandbox, ["python3", "-c", STOPPER], 4)
            await sandbox.until(lambda: sandbox.running("python3"), "the attack runs")
            async with anyio.create_task_group() as burst:
                for _ in range(10):
                    burst.start_soon(lambda: sandbox.exec(["sleep", "0.05"], timeout=1))
        await sandbox.works()


@pytest.mark.on("docker")
async def test_root_can_kill_the_way_in_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch, workflow: str) -> None:
    """In `standard` programs are root of the container. The call is lost, and says so; the next one finds its way."""
    monkeypatch.setattr(near, "dial", far)
    async with box(workflow=workflow), box(workflow=workflow) as sandbox:  # who makes it has a way of his own
        await sandbox.session.write("file", "kept")
        for signal in ("KILL", "STOP"):
            await sandbox.session.release()  # whoever made it talks to PID 1 itself; others come in by a program
            with pytest.raises(errors.SessionLost), anyio.fail_after(40):
                await sandbox.exec(["bash", "-c", f"kill -{signal} -1; sleep 300"], timeout=1)
            await sandbox.works()
            assert await sandbox.session.read_text("file") == "kept"
        await sandbox.empty()
        await sandbox.session.close()


QUEUE = """
import ctypes, os, sys
libc, number = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p(0)
for signal in range(1, 65):
    libc.kill(1, signal)
    libc.sigqueue(1, signal, number)  # to Go's runtime, this looks like a fault of its own
    for thread in range(2, 40):
        libc.syscall(234, 1, thread, signal)  # tgkill
for _ in range(5000):
    libc.kill(1, 23)  # while Go handles SIGURG, its thread has all others blocked
    libc.kill(1, 15)
print("sent")
"""


@every()
async def test_all_signals_to_pid_1_are_in_vain() -> None:
    async with box() as sandbox:
        for _ in range(10):
            result = await sandbox.exec(["python3", "-c", QUEUE], timeout=20)
            assert result.stdout == "sent\n"
        await sandbox.works()
        ignored = await sandbox.exec(["grep", "SigIgn", "/proc/self/status"])
        assert ignored.stdout.split()[1] == "0" * 16  # what the guest ignores, programs do not
        twin = await sandbox.exec(["bash", "-c", "sleep 300 & kill -TERM $!; wait $!; echo $?"])
        assert twin.stdout == "143\n"


async def test_all_signals_to_supervisors_but_kill_and_stop_are_in_vain() -> None:
    async with box() as sandbox:
        script = "for s in $(seq 1 31); do case $s in 9|19) ;; *) kill -$s $PPID;; esac; done; echo sent"
        for _ in range(10):
            result = await sandbox.exec(["bash", "-c", script], timeout=20)
            assert (result.stdout, result.end_cause, result.exit_code) == ("sent\n", EndCause.COMPLETED, 0)
        await sandbox.works()


FORGE = """
import glob, os
opened = []
for pid in ["1"] + [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for path in (f"/proc/{pid}/mem", f"/proc/{pid}/environ", *glob.glob(f"/proc/{pid}/fd/*"),
                 *(f"/proc/{pid}/fd/{n}" for n in range(32)), f"/proc/{pid}/root", f"/proc/{pid}/cwd/x"):
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(path, flags))
                opened.append(path)
            except OSError:
                pass
print(opened)
own = os.open("/proc/self/mem", os.O_RDWR)
print(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:4])
print([line.split()[-1] for line in open("/proc/net/unix") if line.split()[-1].startswith(("/", "@"))])
"""


@confined()
async def test_frames_cannot_be_forged() -> None:
    """Not where programs are root: they can open what starts just now, before it has hardened itself."""
    async with box() as sandbox:
        await sandbox.session.write("forge.py", FORGE)
        for _ in range(3):
            result = await sandbox.exec(["python3", "forge.py"])
            opened, own, sockets = result.stdout.splitlines()
            assert opened == "[]", opened  # nothing of PID 1 or of a supervisor
            assert own == "[0, 1, 2, 3]"  # the listing itself is 3 or 4: nothing was inherited
            # A guest that was given its socket has none that can be seen; one in a container turns tenants away.
            assert set(ast.literal_eval(sockets)) <= {"/.holdfast-run/sock"}
            connect = "import socket; s = socket.socket(1); s.connect('/.holdfast-run/sock'); s.settimeout(5)"
            turned = await sandbox.exec(["python3", "-c", connect + "; print(s.recv(1))"])
            assert turned.stdout == "b''\n" or "Error" in turned.stderr


WINDOW = """
import os, sys, time
seen, opened, end = {os.getpid()}, [], time.monotonic() + 4
while time.monotonic() < end:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in seen: continue
        try:
            if b"supervise" not in open(f"/proc/{pid}/cmdline", "rb").read(): continue
            for name in ("mem", "fd/0"):
                os.close(os.open(f"/proc/{pid}/{name}", os.O_RDWR))
                if b"supervise" in open(f"/proc/{pid}/cmdline", "rb").read():  # and not its program, by now
                    opened.append((pid, name))
        except OSError:
            continue
print(len(opened), opened[:5])
"""


@pytest.mark.on("local")
async def test_a_new_supervisor_is_closed_from_its_first_instruction() -> None:
    """Between its start and its hardening, a program could take over a supervisor that has no filter yet."""
    async with box() as sandbox:
        await sandbox.session.write("window.py", WINDOW)
        async with anyio.create_task_group() as tasks:
            results: list[ExecResult] = []

            async def attack() -> None:
                results.append(await sandbox.exec(["python3", "window.py"], timeout=20))

            tasks.start_soon(attack)
            await sandbox.until(lambda: sandbox.running("window.py"), "the attack runs")
            for _ in range(12):
                async with anyio.create_task_group() as burst:
                    for _ in range(12):
                        burst.start_soon(sandbox.exec, ["sleep", "0.05"])
        assert results[0].stdout.startswith("0 "), results[0].stdout

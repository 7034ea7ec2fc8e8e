"""What a program can reach, in sessions and in runs: no privilege, no host file, no network (T52, T54, T55)."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast import ExecResult, aio, errors
from tests.faults.host import box, every

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]

Runs = Callable[[str], Awaitable[ExecResult]]

STATUS = """
import os
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name in ("CapEff", "CapPrm", "CapAmb", "NoNewPrivs", "Seccomp", "Groups"): print(name, value.strip())
print("ids", os.getresuid(), os.getresgid())
"""

CALLS = """
import ctypes, errno, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
numbers = {  # name: (amd64, arm64, arguments)
    "io_uring_setup": (425, 425, (1, 0)), "io_uring_enter": (426, 426, (-1,)), "io_uring_register": (427, 427, (-1,)),
    "ptrace": (101, 117, (0,)), "process_vm_readv": (310, 270, (1,)), "process_vm_writev": (311, 271, (1,)),
    "keyctl": (250, 219, (0, -3, 0)), "add_key": (248, 217, ()), "request_key": (249, 218, ()),
    "unshare user": (272, 97, (0x10000000,)), "unshare net": (272, 97, (0x40000000,)), "unshare 0": (272, 97, (0,)),
    "setns": (308, 268, (-1, 0)), "mount": (165, 40, ()), "umount2": (166, 39, ()), "pivot_root": (155, 41, ()),
    "chroot": (161, 51, ()), "fsopen": (430, 430, ()), "open_tree": (428, 428, (-1,)), "move_mount": (429, 429, (-1,)),
    "bpf": (321, 280, (0,)), "perf_event_open": (298, 241, ()), "userfaultfd": (323, 282, (0,)),
    "name_to_handle_at": (303, 264, (-1,)), "open_by_handle_at": (304, 265, (-1,)), "kcmp": (312, 272, (1, 1, 0)),
    "clone newuser": (56, 220, (0x10000000 | 17,)), "reboot": (169, 142, ()), "kexec_load": (246, 104, ()),
    "init_module": (175, 105, ()), "syslog": (103, 116, (3,)), "clone3": (435, 435, (0, 0)), "getpid": (39, 172, ()),
}
found = {name: call(one if x86 else other, *arguments) for name, (one, other, arguments) in numbers.items()}
for family in range(46):
    for kind in (1, 2, 3, 5):
        fd = libc.socket(family, kind, 0)
        found[f"socket {family}"] = "ok" if fd >= 0 else errno.errorcode[ctypes.get_errno()]
        if fd >= 0: os.close(fd); break
print(json.dumps(found))
"""

# int 0x80 with eax = 20: getpid of the 32-bit ABI, whose system calls no filter of the 64-bit one sees.
FOREIGN = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({!r}))
run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("before", flush=True)
print("pid", run())
"""
INT_80, NATIVE = "b814000000cd80c3", "b8270000000f05c3"


async def in_session(code: str) -> ExecResult:
    async with box() as sandbox:
        return await sandbox.exec(["python3", "-c", code], timeout=30)


async def in_run(code: str) -> ExecResult:
    return await aio.run(code, timeout=30)


def root() -> bool:
    """Whether programs are root of their container, as the profile `standard` has it for package managers."""
    return os.environ["HOLDFAST_ENGINE"] == "docker" and os.environ["HOLDFAST_PROFILE"] == "standard"


both = pytest.mark.parametrize("runs", [in_session, in_run])


@every()
@both
async def test_t54_t55_no_privileges(runs: Runs) -> None:
    result = await runs(STATUS)
    groups, *rest = result.stdout.splitlines()
    uid = 0 if root() else 65532
    capabilities = f"{0xFB if root() else 0:016x}"  # all that `container.py` names, and none that leaves a container
    assert groups.removeprefix("Groups ") in ("", str(uid))
    assert rest == [
        f"CapPrm {capabilities}",
        f"CapEff {capabilities}",
        "CapAmb 0000000000000000",
        "NoNewPrivs 1",
        "Seccomp 2",
        f"ids {(uid,) * 3} {(uid,) * 3}",
    ], result.stdout


@every()
@both
async def test_t52_t55_system_calls_and_socket_families(runs: Runs) -> None:
    result = await runs(CALLS)
    found: dict[str, str] = json.loads(result.stdout)
    open_ones = {name for name, said in found.items() if said == "ok"}
    assert open_ones == {"getpid", "socket 1"}, open_ones
    assert found["clone3"] == "ENOSYS"
    sockets = {said for name, said in found.items() if name.startswith("socket ") and name != "socket 1"}
    assert sockets <= {"EPERM", "EAFNOSUPPORT"}
    others = {name: said for name, said in found.items() if not name.startswith("socket") and name not in open_ones}
    others.pop("clone3")
    assert set(others.values()) == {"EPERM"}, others


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the foreign ABI is x86's")
@both
async def test_t52_the_foreign_abi_is_deadly(runs: Runs) -> None:
    result = await runs(FOREIGN.format(INT_80))
    assert (result.stdout, result.signal, result.exit_code) == ("before\n", 31, None), result.as_tool()
    native = await runs(FOREIGN.format(NATIVE))
    assert native.ok and int(native.stdout.split()[-1]) > 1


@every()
@both
async def test_t54_t55_what_can_be_written(runs: Runs) -> None:
    probe = """
import os
places = ["/", "/usr", "/usr/bin", "/etc", "/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
          "/proc/1/oom_score_adj", "/proc/sysrq-trigger", "/sys", "/sys/fs/cgroup", "/dev", "/.holdfast",
          "/.holdfast/guest", "/.holdfast/memory.events", "/root", "/home", "/var", "/run", "/dev/mem", "/boot"]
written = []
for place in places:
    target = place + "/planted" if os.path.isdir(place) else place
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
        written.append(place)
    except OSError: pass
for place in ("/tmp", os.getcwd(), os.environ["HOME"], "/dev/shm"):
    open(place + "/mine", "w").write("x")
print(written)
"""
    result = await runs(probe)
    written = set(ast.literal_eval(result.stdout))
    if root():  # of the container's own files, and of nothing that is the kernel's or ours
        kernel = {place for place in written if place.startswith(("/proc/sys", "/sys"))}
        assert kernel <= {"/sys/fs/cgroup"}  # a tmpfs of the container's own
        assert "/.holdfast/guest" not in written
    else:
        assert not written
    assert result.stderr == ""


LOOK = """
import os, socket
paths = {paths}
print([path for path in paths if os.path.lexists(path)])
never = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/root/.ssh", "/etc/ssh"]
print([path for path in never if os.path.lexists(path)])
try:
    socket.socket(1).connect("\\0holdfast-{pid}"); print("connected")
except OSError: print("refused")
print(os.uname().nodename, len([name for name in os.listdir("/proc") if name.isdigit()]) < 10)
print(" ".join(sorted(os.listdir("/dev"))))
"""
DEVICES = "console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"


@pytest.fixture
def look(engine: str) -> Iterator[str]:
    """Code that looks for things of the host which are there."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".holdfast-secret-") as folder:
        Path(folder, "secret").write_text("seen")
        with socket.socket(1) as plain, socket.socket(1) as abstract:
            plain.bind(f"{folder}/socket")
            abstract.bind(f"\0holdfast-{os.getpid()}")
            abstract.listen()
            paths = [f"{folder}/secret", f"{folder}/socket", f"/proc/{os.getpid()}/status"]
            if engine == "local":  # an image has its own
                paths += ["/etc/shadow", "/etc/hostname", "/var/lib", "/sys/kernel"]
            yield LOOK.format(paths=paths, pid=os.getpid())


@both
async def test_t54_t55_nothing_of_the_host_is_visible(runs: Runs, look: str) -> None:
    visible, never, joined, name, devices = (await runs(look)).stdout.splitlines()
    assert (visible, never, joined, name) == ("[]", "[]", "refused", "sandbox True")
    assert set(devices.split()) <= set(DEVICES.split())


def test_t54_t55_the_same_look_from_the_host_sees_all(look: str) -> None:
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    visible, _, joined, *_ = found.splitlines()
    assert visible.count(",") >= 2 and "secret" in visible and joined == "connected"


async def test_sessions_do_not_see_each_other() -> None:
    async with box() as one, box() as other:
        await one.session.write("secret", "x")
        sleeper = await one.session.start(["sleep", "299"])
        await one.until(lambda: one.running("299"), "it runs")
        found = await other.exec("ls /workspace; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "secret" not in found.stdout and "299" not in found.stdout
        with contextlib.suppress(errors.SessionLost):  # root kills the way in, too
            await other.exec("kill -9 -1; true")
        assert one.running("299")
        await sleeper.kill()


async def test_in_flight_descriptors_of_one_program_stop_nobody() -> None:
    """The kernel counts files that are on their way through sockets for each user, and sessions share one."""
    async with box() as one, box() as other:
        flight = """
import socket, os, time
kept = []
try:
    while True:
        left, right = socket.socketpair()
        kept += [left, right]
        for _ in range(5): socket.send_fds(left, [b"x"], [0] * 200)
except OSError as error: print(error.errno)
print("up", flush=True)
time.sleep(60)
"""
        holder = await one.session.start(["python3", "-c", flight], timeout=60)
        await one.said(holder, b"up")
        await one.works()
        await other.works()
        await holder.kill()

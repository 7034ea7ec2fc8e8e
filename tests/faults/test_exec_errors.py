"""What cannot be started is one named error each; a program that only looks like it is a result (T12, T13)."""

from __future__ import annotations

import anyio
import pytest

from holdfast import EndCause, errors
from tests.faults.host import Box, box, confined, every

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_t12_programs() -> None:
    async with box() as sandbox:
        await sandbox.session.write("plain.txt", "no program")
        await sandbox.session.write("no-interpreter", "#!/does/not/exist\n", mode=0o755)
        await sandbox.session.write("noise", b"\x00\x01\x02\x03", mode=0o755)
        await sandbox.session.write("works", "#!/bin/sh\necho ran\n", mode=0o755)
        await sandbox.session.mkdir("folder")
        for command, kind in (
            (["no-such-program"], errors.CommandNotFound),
            (["/no/such/program"], errors.CommandNotFound),
            (["./missing"], errors.CommandNotFound),
            (["./no-interpreter"], errors.CommandNotFound),
            (["./plain.txt"], errors.NotExecutable),
            (["./folder"], errors.NotExecutable),
            (["./noise"], errors.NotExecutable),
            (["/workspace"], errors.NotExecutable),
            ([], errors.InvalidRequest),
            ([""], errors.InvalidRequest),
            ("", errors.InvalidRequest),
            (["echo", "a\0b"], errors.InvalidRequest),
            ("echo a\0b", errors.InvalidRequest),
            (["echo", "\ud800"], errors.InvalidRequest),
            (["echo", "x" * 200_000], errors.ArgumentTooLong),
            ("echo " + "x" * 200_000, errors.ArgumentTooLong),
            (["echo", *(["x" * 100_000] * 50)], errors.ArgumentTooLong),
        ):
            with pytest.raises(kind) as refused, anyio.fail_after(20):
                await sandbox.exec(command)
            assert type(refused.value) is kind, command
            assert len(refused.value.message) < 10_000
        assert (await sandbox.exec(["./works"])).stdout == "ran\n"
        long = "x" * 131_000
        assert (await sandbox.exec(["echo", long], max_stdout_bytes=200_000)).stdout == long + "\n"
        await sandbox.empty()


@every()
async def test_t12_folders() -> None:
    async with box() as sandbox:
        await sandbox.session.write("file", "x")
        await sandbox.session.mkdir("sub/deep")
        await sandbox.exec("ln -s /proc link; mkdir -m 000 closed")
        for cwd, kind in (
            ("/no/such", errors.CwdNotFound),
            ("missing", errors.CwdNotFound),
            ("file", errors.CwdNotADirectory),
            ("file/below", errors.CwdNotADirectory),
            ("/proc/self/fd/7", errors.PathNotAllowed),
            ("/proc/self/cwd", errors.PathNotAllowed),
            ("/sys", errors.PathNotAllowed),
            ("/dev/fd", errors.PathNotAllowed),
            ("sub/../../proc", errors.PathNotAllowed),
            *([("closed", errors.PermissionDenied)] if sandbox.uid else []),  # nothing is closed to root
            ("", errors.InvalidRequest),
            ("a\0b", errors.InvalidRequest),
            ("x" * 5000, errors.NameTooLong),
        ):
            with pytest.raises(errors.SandboxError) as refused:
                await sandbox.exec(["pwd"], cwd=cwd)
            assert type(refused.value) is kind, (cwd, refused.value)
        for cwd, real in (("sub/deep", "/workspace/sub/deep"), ("/tmp", "/tmp"), (".", "/workspace")):
            assert (await sandbox.exec(["pwd"], cwd=cwd)).stdout == real + "\n"


@confined()
async def test_t12_users() -> None:
    async with box() as sandbox:
        for user, kind in (
            ("nobody-here", errors.UserUnknown),
            ("", errors.UserUnknown),
            ("-1", errors.UserUnknown),
            ("0:x", errors.UserUnknown),
            ("0", errors.UserNotAvailable),
            ("root", errors.UserNotAvailable),
            ("65532:0", errors.UserNotAvailable),
            ("4294967295", errors.UserNotAvailable),
        ):
            with pytest.raises(errors.ExecError) as refused:
                await sandbox.exec(["id"], user=user)
            assert type(refused.value) is kind, user
        assert (await sandbox.exec(["id", "-u"], user="65532:65532")).stdout == "65532\n"


@pytest.mark.on("docker")
async def test_t12_users_where_there_are_others() -> None:
    async with box() as sandbox:
        for user in ("nobody-here", "", "-1", "0:x"):
            with pytest.raises(errors.UserUnknown):
                await sandbox.exec(["id"], user=user)
        for user, ids in (
            ("root", "0 0"),
            ("nobody", "65534 65534"),
            ("1234", "1234 1234"),
            ("1234:5678", "1234 5678"),
        ):
            assert (await sandbox.exec("echo $(id -u) $(id -g)", user=user)).stdout == ids + "\n"
        # all that belongs to somebody else dies with its exec, too
        await sandbox.exec("setsid sleep 301 & sleep 302", user="nobody", timeout=0.5)
        await sandbox.empty()


async def test_t12_times_and_caps() -> None:
    async with box() as sandbox:
        for timeout in (0, -1, float("nan"), float("inf")):
            with pytest.raises(errors.InvalidRequest):
                await sandbox.exec(["true"], timeout=timeout)
        for cap in (-1, 1 << 40):
            with pytest.raises(errors.InvalidRequest):
                await sandbox.exec(["true"], max_stdout_bytes=cap)
        assert (await sandbox.exec(["echo", "x"], max_stdout_bytes=0)).stdout_total_bytes == 2
        for _ in range(20):  # the shortest that there is still ends everything
            short = await sandbox.exec(["sleep", "60"], timeout=0.001)
            assert short.end_cause is EndCause.TIMEOUT
        await sandbox.empty()


async def failed(sandbox: Box, code: int) -> None:
    text = "OCI runtime exec failed: exec failed: unable to start container process: no such file or directory"
    result = await sandbox.exec(f"echo '{text}'; exit {code}")
    assert (result.exit_code, result.end_cause, result.stdout) == (code, EndCause.COMPLETED, text + "\n")
    assert not result.ok


async def test_t13_a_program_that_sounds_like_an_error_is_a_result() -> None:
    async with box() as sandbox:
        for code in (125, 126, 127, 137, 255):
            await failed(sandbox, code)
        missing = await sandbox.exec("no-such-program")  # sh says so, and not we
        assert (missing.exit_code, missing.end_cause) == (127, EndCause.COMPLETED)
        by_signal = await sandbox.exec("kill -9 $$")
        assert (by_signal.exit_code, by_signal.signal) == (None, 9)
        assert by_signal.end_cause is EndCause.COMPLETED and not by_signal.ok
        assert (await sandbox.exec("exit 300")).exit_code == 44


async def test_calls_on_an_exec_that_is_none() -> None:
    async with box() as sandbox:
        ghost = sandbox.session.process("x999")
        for call in (ghost.read, ghost.wait, ghost.kill):
            with pytest.raises(errors.ExecNotFound):
                await call()
        with pytest.raises(errors.ExecNotFound):
            await ghost.write_stdin("x")
        without = await sandbox.session.start(["sleep", "60"])
        with pytest.raises(errors.StdinClosed):
            await without.write_stdin("x")
        for number in (0, -9, 65, 1 << 40):
            with pytest.raises(errors.InvalidRequest):
                await without.kill(number)
        assert sandbox.running("60")
        await without.kill()
        with_stdin = await sandbox.session.start(["cat"], stdin=True)
        await with_stdin.write_stdin("one ")
        await with_stdin.write_stdin("two", close=True)
        assert (await with_stdin.wait(20)).stdout == "one two"

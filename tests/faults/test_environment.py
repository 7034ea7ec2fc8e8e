"""What programs find in their environment, and what nobody can put there (T56)."""

from __future__ import annotations

import anyio
import pytest

from holdfast import aio, errors
from tests.faults.host import box

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_t56_the_environment_is_built_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "do not tell")
    monkeypatch.setenv("LD_PRELOAD", "")
    async with box(env={"ALL": "execs"}) as sandbox:
        result = await sandbox.exec(["env"], env={"MINE": "only"})
        found = dict(line.split("=", 1) for line in result.stdout.splitlines())
        assert found["ALL"] == "execs" and found["MINE"] == "only" and found["HOME"] == sandbox.home
        assert "do not tell" not in result.stdout
        known = {"PATH", "HOME", "USER", "LANG", "TMPDIR", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
        assert {"PATH", "HOME", "LANG", "ALL", "MINE"} <= set(found) <= known | {"ALL", "MINE"}
        assert "MINE" not in (await sandbox.exec(["env"])).stdout
        assert (await sandbox.exec(["env"], env={"ALL": "changed"})).stdout.count("ALL=changed") == 1


async def test_t56_values() -> None:
    async with box() as sandbox:
        for value in ("", "new\nline", "a=b", "ü", "\udcff", "x" * 100_000, " ", "$(id)", "\x1b[31m"):
            shown = await sandbox.exec(["printenv", "V"], env={"V": value}, max_stdout_bytes=200_000)
            assert shown.stdout_bytes == value.encode("utf-8", "surrogateescape") + b"\n"


async def test_t56_names_and_sizes_that_are_refused() -> None:
    async with box() as sandbox:
        for name in ("", "A=B", "1A", "A B", "A-B", "A\nB", "Ü", "\udcff", "A\0B", "A."):
            with pytest.raises(errors.InvalidRequest):
                await sandbox.exec(["env"], env={name: "x"})
        with pytest.raises(errors.InvalidRequest):
            await sandbox.exec(["env"], env={"A": "a\0b"})
        with pytest.raises(errors.ArgumentTooLong):
            await sandbox.exec(["env"], env={"A": "x" * (1 << 20)})
        with pytest.raises(errors.ArgumentTooLong):
            await sandbox.exec(["env"], env={f"A{n}": "x" * 1000 for n in range(10_000)})
        many = {f"A{n}": "x" for n in range(10_000)}
        with anyio.fail_after(30):
            counted = await sandbox.exec("env | grep -c '^A[0-9]'", env=many)
        assert counted.stdout == "10000\n"
        await sandbox.works()


async def test_t56_what_loads_code_reaches_the_program_and_not_the_guest() -> None:
    async with box() as sandbox:
        hostile = {"LD_PRELOAD": "/workspace/evil.so", "PATH": "/workspace/bin", "GODEBUG": "x", "GOTRACEBACK": "crash"}
        await sandbox.session.write("bin/id", "#!/bin/sh\necho planted\n", mode=0o755)
        for _ in range(5):
            result = await sandbox.exec(["id"], env=hostile)
            assert result.stdout == "planted\n"  # PATH is the caller's, and means what it says
            with pytest.raises(errors.CommandNotFound):
                await sandbox.exec(["env"], env=hostile)
        for seen in sandbox.supervisors():
            assert "evil" not in seen.command
        real = await sandbox.exec(["id", "-u"])
        assert real.stdout == f"{sandbox.uid}\n"
        await sandbox.works()


async def test_t56_a_planted_program_does_not_replace_a_tool_of_ours() -> None:
    """Nothing that the guest does depends on what a program has put on its PATH or into its home."""
    async with box() as sandbox:
        for tool in ("timeout", "kill", "sh", "cat", "python3"):
            await sandbox.session.write(tool, "#!/bin/sh\nexit 99\n", mode=0o755)
        await sandbox.exec("cp timeout kill sh cat python3 ~ ; echo 'exit 98' > ~/.profile; cp ~/.profile ~/.bashrc")
        result = await sandbox.exec("sleep 60", timeout=1)
        assert result.end_cause == "timeout"
        await sandbox.empty()
        assert (await sandbox.exec("echo $0")).stdout == "sh\n"


async def test_t56_a_run_has_the_same_rules() -> None:
    result = await aio.run("import os; print(os.environ['A'], os.environ['HOME'])", env={"A": "b"})
    assert result.stdout in ("b /home/sandbox\n", "b /root\n")
    with pytest.raises(errors.InvalidRequest):
        await aio.run("print(1)", env={"A=B": "x"})

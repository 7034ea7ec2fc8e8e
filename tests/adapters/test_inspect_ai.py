"""The Inspect provider: Inspect's own portable checks, its contract where they do not look, and a real evaluation."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import anyio
import pytest
from inspect_ai.util import (
    ExecCompleted,
    ExecRemoteStreamingOptions,
    ExecStdout,
    OutputLimitExceededError,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.limits import override_sandbox_output_limit

from holdfast import aio, errors
from holdfast.tools.adapters.inspect_ai import WORKFLOW, HoldfastConfig, HoldfastSandbox
from tests.conformance import host

from .runaways import RUNAWAYS, left_after_cancelling, running

HERE = Path(__file__).parent

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
only_docker = pytest.mark.parametrize("engine", ["docker"], indirect=True)
only_local = pytest.mark.parametrize("engine", ["local"], indirect=True)


@asynccontextmanager
async def sample(**options: Any) -> AsyncIterator[HoldfastSandbox]:
    """A sandbox as Inspect makes and removes it."""
    made = await HoldfastSandbox.sample_init("task", HoldfastConfig(**options), {})
    try:
        yield made["default"].as_type(HoldfastSandbox)
    finally:
        await HoldfastSandbox.sample_cleanup("task", None, made, False)


@pytest.fixture
async def box(engine: str, mark: str) -> AsyncIterator[HoldfastSandbox]:
    async with sample(env={"HF_MARK": mark}) as opened:
        yield opened


async def checked(box: HoldfastSandbox) -> dict[str, BaseException | None]:
    """Each of Inspect's own checks, one after the other, for they share names of files; and what went wrong."""
    found: dict[str, BaseException | None] = dict.fromkeys(self_check.__all__)
    for name in found:
        try:
            await getattr(self_check, name)(box)
        except Exception as error:  # noqa: BLE001  it is what was found
            found[name] = error
    return found


@only_docker
async def test_inspects_own_checks_pass_unmodified(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, as somebody else, and in `strict`, where there is nobody else to be."""
    found: dict[str, dict[str, BaseException | None]] = {}

    async def check(what: str, box: HoldfastSandbox) -> None:
        found[what] = await checked(box)

    monkeypatch.setenv("HOLDFAST_PROFILE", "strict")
    async with sample() as strict:
        assert strict.session.effective.profile == "strict"
        monkeypatch.setenv("HOLDFAST_PROFILE", "standard")
        async with sample() as root, sample(user="1000") as user, anyio.create_task_group() as tasks:
            tasks.start_soon(check, "strict", strict)
            tasks.start_soon(check, "root", root)
            tasks.start_soon(check, "user", user)
    assert {what: len(results) for what, results in found.items()} == {"root": 44, "user": 44, "strict": 44}
    failed = {(what, name): error for what in found for name, error in found[what].items() if error is not None}
    switching = failed.pop(("strict", "test_exec_as_user"))
    assert isinstance(switching, SandboxUserUnsupportedError)
    assert failed == {}


async def test_a_command_that_is_late_or_cancelled_leaves_no_process(box: HoldfastSandbox, mark: str) -> None:
    with pytest.raises(TimeoutError) as late:
        await box.exec(["sh", "-c", f"echo begun; {RUNAWAYS}"], timeout=1)
    assert vars(late.value)["truncated_output"] == "begun\n"
    assert await host.gone(mark) == []
    assert await left_after_cancelling(lambda: box.exec(["sh", "-c", RUNAWAYS]), mark) == []
    assert (await box.exec(["echo", "still here"])).stdout == "still here\n"


async def test_a_sample_that_is_interrupted_leaves_nothing(engine: str, mark: str) -> None:
    async def work() -> None:
        made = await HoldfastSandbox.sample_init("task", HoldfastConfig(env={"HF_MARK": mark}), {})
        try:
            await made["default"].exec(["sh", "-c", RUNAWAYS])
        finally:
            await HoldfastSandbox.sample_cleanup("task", None, made, True)

    assert await left_after_cancelling(work, mark) == []
    assert await aio.list_sessions(engine) == []


@only_local
async def test_what_a_caller_can_mend_is_a_result_and_what_is_not_is_an_error(box: HoldfastSandbox) -> None:
    missing = await box.exec(["no-such-program"])
    assert (missing.success, missing.returncode, "no-such-program" in missing.stderr) == (False, 127, True)
    assert (await box.exec(["true"], cwd="nowhere")).returncode == 126
    assert (await box.exec(["echo", "a\0b"])).returncode == 126
    assert (await box.exec(["cat"], user="nobody-here")).returncode == 126
    assert (await box.exec(["sh", "-c", "echo out; echo err >&2; kill -9 $$"])).returncode == 137
    with pytest.raises(SandboxUserUnsupportedError):
        await box.exec(["true"], user="0")
    with pytest.raises(PermissionError) as refused:
        await box.exec(["/etc/passwd"])
    assert refused.value.filename == "/etc/passwd"
    with override_sandbox_output_limit(1000):
        with pytest.raises(OutputLimitExceededError) as much:
            await box.exec(["sh", "-c", "head -c 1001 /dev/zero"])
        assert len(much.value.truncated_output or "") == 1000
        assert len((await box.exec(["sh", "-c", "head -c 1000 /dev/zero"])).stdout) == 1000
    async with aio.open_session(workflow=WORKFLOW, session=box.session.key.name) as other:
        await other.close()
    for call in (lambda: box.exec(["true"]), lambda: box.read_file("x"), lambda: box.write_file("x", "")):
        with pytest.raises(SandboxUnavailableError):
            await call()


async def test_files_in_and_outside_of_the_workspace(box: HoldfastSandbox) -> None:
    for path in ("in/a.txt", "/tmp/out/a.txt"):
        await box.write_file(path, "a\r\nä")
        assert await box.read_file(path) == "a\r\nä"
        with pytest.raises(IsADirectoryError):
            await box.write_file(path.removesuffix("/a.txt"), "")
        with pytest.raises(NotADirectoryError):
            await box.write_file(f"{path}/below", "")
        with pytest.raises(FileNotFoundError) as missing:
            await box.read_file(f"{path}.not")
        assert missing.value.filename == f"{path}.not"
        await box.write_file(path, b"\xff\xfe")
        with pytest.raises(UnicodeDecodeError):
            await box.read_file(path)
        with override_sandbox_output_limit(1), pytest.raises(OutputLimitExceededError):
            await box.read_file(path, text=False)
        assert await box.read_file(path, text=False) == b"\xff\xfe"
    with pytest.raises(ValueError, match="embedded null byte"):
        await box.read_file("a\0b")
    await box.exec(["mkfifo", "pipe"])
    with pytest.raises(OSError, match="not a regular file"):
        await box.read_file("pipe")


@only_docker
async def test_a_scorer_reads_what_is_there_whatever_an_agent_did_to_the_programs(box: HoldfastSandbox) -> None:
    await box.write_file("answer", "wrong")
    lie = "#!/bin/sh\necho right\n"
    await box.exec(["sh", "-c", "rm /bin/cat; tee /bin/cat; chmod +x /bin/cat"], input=lie)
    assert (await box.exec(["cat", "answer"])).stdout == "right\n"
    assert await box.read_file("answer") == "wrong"


@only_docker
async def test_programs_run_as_the_user_of_the_configuration(engine: str) -> None:
    async with sample(user="1000") as box:
        made = await box.exec(["sh", "-c", "id -u; touch mine; echo $HOME"])
        assert made.stdout == "1000\n/workspace\n"
        assert (await box.exec(["id", "-u"], user="root")).stdout == "0\n"
        await box.write_file("theirs", "")
        assert (await box.exec(["stat", "-c", "%u", "theirs"])).stdout == "1000\n"
        with pytest.raises(PermissionError) as refused:
            await box.write_file("/etc/theirs", "")
        assert refused.value.errno == errno.EACCES
        command = shlex.split((await box.connection()).command)
        command.remove("-it")
        shell = subprocess.run([*command, "-c", "id -u; ls"], capture_output=True, text=True, check=True)
        assert shell.stdout == "1000\nmine\ntheirs\n"
    with pytest.raises(ConnectionError):
        await box.connection()
    with pytest.raises(SandboxUserUnsupportedError, match="nobody-here"):
        async with sample(user="nobody-here"):
            pass
    assert await aio.list_sessions(engine) == []


@only_docker
async def test_inspects_own_tools_find_their_server_again(box: HoldfastSandbox) -> None:
    """They are put into the sandbox, and start a server there; each poll of a program is a command of its own."""
    inside = SandboxEnvironmentProxy(box)
    process = await inside.exec_remote(
        ["sh", "-c", "read word; echo $word; exit 3"], ExecRemoteStreamingOptions(stdin_open=True)
    )
    await process.write_stdin("hello\n")
    assert [event async for event in process] == [ExecStdout("hello\n"), ExecCompleted(3)]
    assert (await inside.exec_remote(["echo", "again"], stream=False)).stdout == "again\n"


@only_local
async def test_options_come_as_a_model_a_dictionary_or_a_file(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "sandbox.toml"
    file.write_text('runtime = "bash"\n[limits]\nmemory_mb = 128\n')
    made = await HoldfastSandbox.sample_init("task", str(file), {})
    box = made["default"].as_type(HoldfastSandbox)
    assert (box.session.effective.runtime, box.session.effective.limits["memory_mb"]) == ("bash", 128)
    await HoldfastSandbox.sample_cleanup("task", str(file), made, False)
    plain = HoldfastSandbox.config_deserialize({"limits": {"memory_mb": 128}})
    assert plain.limits.memory_mb == 128
    same = {HoldfastConfig(env={"A": value}) for value in ("1", "1", "2")}  # as Inspect keeps them
    assert len(same) == 2
    with pytest.raises(ValueError, match="memory"):
        HoldfastSandbox.config_deserialize({"memory": 128})
    with pytest.raises(errors.ImageNotAllowed):
        await HoldfastSandbox.sample_init("task", HoldfastConfig(image="stranger:1", engine="docker"), {})


@only_local
async def test_what_was_not_to_be_ended_is_named_and_can_be_ended(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    for _ in range(3):
        made = await HoldfastSandbox.sample_init("task", None, {})
        names.append(made["default"].as_type(HoldfastSandbox).session.key.name)
    await HoldfastSandbox.task_cleanup("task", None, cleanup=True)
    assert capsys.readouterr().out == ""
    await HoldfastSandbox.task_cleanup("task", None, cleanup=False)
    said = capsys.readouterr().out
    assert all(f"inspect sandbox cleanup holdfast {name}\n" in said for name in names)
    await HoldfastSandbox.cli_cleanup(names[0])
    assert {key.name for key, _ in await aio.list_sessions(engine)} == {*names[1:]}
    with pytest.raises(errors.SessionNotFound):
        await HoldfastSandbox.cli_cleanup(names[0])
    await HoldfastSandbox.cli_cleanup(None)
    assert await aio.list_sessions(engine) == []


def evaluation(folder: Path, command: str = "true") -> list[str]:
    inspect = str(Path(sys.executable).with_name("inspect"))
    options = ["--display=none", "--log-format=json", f"--log-dir={folder}"]
    return [inspect, "eval", "inspect_task.py", *options, "-T", f"command={command}"]


def outcome(folder: Path) -> dict[str, Any]:
    (log,) = folder.glob("*.json")
    return dict(json.loads(log.read_text()))


@pytest.mark.timeout(240)
@only_docker
async def test_inspect_finds_the_provider_and_evaluates_a_task(engine: str, tmp_path: Path) -> None:
    assert [found.value for found in entry_points(group="inspect_ai")] == ["holdfast.tools.adapters.inspect_ai"]
    done = await anyio.run_process(evaluation(tmp_path), cwd=HERE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = outcome(tmp_path)
    assert found["status"] == "success", found["error"]
    assert found["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1
    assert await aio.list_sessions(engine) == []


@pytest.mark.timeout(240)
@only_docker
async def test_an_evaluation_that_is_interrupted_ends_its_sandboxes(engine: str, mark: str, tmp_path: Path) -> None:
    command = evaluation(tmp_path, f"export HF_MARK={mark}; {RUNAWAYS}")
    async with await anyio.open_process(command, cwd=HERE, stdout=None, stderr=None) as process:
        with anyio.fail_after(150):  # Inspect takes its time to be imported
            while not await running(mark):
                await anyio.sleep(0.5)
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert outcome(tmp_path)["status"] == "cancelled"
    assert await host.gone(mark) == []
    assert await aio.list_sessions(engine) == []

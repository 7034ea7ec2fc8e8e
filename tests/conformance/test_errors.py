"""Bad input: one named error for each mistake, which says what to do; and the session works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import pytest

from holdfast import Limits, aio, errors
from holdfast.abc import Capability, Engine
from holdfast.engines.fake.pipe import pair
from holdfast.guest import protocol
from holdfast.guest.connection import Connection, frame
from holdfast.guest.protocol import Kind

from .conftest import Open, ProbeArgv
from .requires import requires

pytestmark = pytest.mark.anyio

LONG = "x" * 200_000


@pytest.fixture
def say(probe: ProbeArgv) -> list[str]:
    return probe("say", "works", "", 0)


# --- programs


async def test_a_program_that_is_not_there(box: aio.Session, say: list[str]) -> None:
    for name in ("no-such-program", "/usr/bin/no-such-program", "./no-such-program"):
        with pytest.raises(errors.CommandNotFound, match="no-such-program"):
            await box.exec([name, "argument"])
    assert (await box.exec(say)).stdout == "works"


async def test_a_file_that_is_not_executable(box: aio.Session) -> None:
    await box.write("script.sh", "#!/bin/sh\necho hi\n")
    with pytest.raises(errors.NotExecutable, match="chmod"):
        await box.exec(["./script.sh"])


@requires(Capability.REAL_PROCESSES)
async def test_a_file_that_is_executable(box: aio.Session) -> None:
    await box.write("script.sh", "#!/bin/sh\necho hi\n", mode=0o755)
    assert (await box.exec(["./script.sh"])).stdout == "hi\n"


@pytest.mark.parametrize(
    ("cwd", "error"),
    [
        ("missing", errors.CwdNotFound),
        ("/no/such/folder", errors.CwdNotFound),
        ("file", errors.CwdNotADirectory),
        ("file/below", errors.CwdNotADirectory),
        ("/proc/self/fd/7", errors.PathNotAllowed),
        ("", errors.InvalidRequest),
        ("x" * 300, errors.NameTooLong),
    ],
)
async def test_a_working_directory_that_is_none(
    box: aio.Session, say: list[str], cwd: str, error: type[Exception]
) -> None:
    await box.write("file", "")
    with pytest.raises(error):
        await box.exec(say, cwd=cwd)
    await box.mkdir("folder")
    assert (await box.exec(say, cwd="folder")).stdout == "works"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"env": {"A": "x\0y"}}, errors.InvalidRequest),
        ({"env": {"A=B": "x"}}, errors.InvalidRequest),
        ({"env": {"": "x"}}, errors.InvalidRequest),
        ({"env": {"1A": "x"}}, errors.InvalidRequest),
        ({"env": {"A": LONG}}, errors.ArgumentTooLong),
        ({"user": "nobody-of-this-name"}, errors.UserUnknown),
        ({"timeout": 0}, errors.InvalidRequest),
        ({"timeout": -1}, errors.InvalidRequest),
        ({"timeout": float("inf")}, errors.InvalidRequest),
        ({"timeout": float("nan")}, errors.InvalidRequest),
        ({"max_stdout_bytes": -1}, errors.InvalidRequest),
        ({"max_stderr_bytes": 1 << 40}, errors.InvalidRequest),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_option_that_makes_no_sense(
    box: aio.Session, say: list[str], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await box.exec(say, **options)
    with pytest.raises(error):
        await box.start(say, **options)
    assert (await box.exec(say, env={"A": "B"}, timeout=60, max_stdout_bytes=100)).stdout == "works"


@pytest.mark.parametrize("command", [[], [""], ""], ids=repr)
async def test_a_command_that_is_empty(box: aio.Session, command: str | list[str]) -> None:
    with pytest.raises(errors.InvalidRequest, match="empty"):
        await box.exec(command)


async def test_an_argument_with_nul(box: aio.Session, probe: ProbeArgv) -> None:
    with pytest.raises(errors.InvalidRequest, match="NUL"):
        await box.exec(probe("show", "a\0b"))
    with pytest.raises(errors.InvalidRequest, match="NUL"):
        await box.exec("echo a\0b")


async def test_an_argument_of_200_kb(box: aio.Session, probe: ProbeArgv) -> None:
    for command in (probe("show", LONG), f"echo {LONG}"):
        with pytest.raises(errors.ArgumentTooLong, match="write it to a file"):
            await box.exec(command)
    assert len((await box.exec(probe("show", LONG[:100_000]))).stdout) == 200_000


async def test_a_signal_that_is_none(box: aio.Session, probe: ProbeArgv) -> None:
    started = await box.start(probe("forever"))
    for number in (0, -1, 65):
        with pytest.raises(errors.InvalidRequest):
            await started.kill(number)
    await started.kill(9)


@requires(Capability.USER_SWITCH)
async def test_another_user(box: aio.Session) -> None:
    assert (await box.exec("id -u", user="1234")).stdout == "1234\n"


async def test_another_user_where_there_is_none(box: aio.Session, engine: Engine, say: list[str]) -> None:
    if Capability.USER_SWITCH in (await engine.check()).capabilities:
        pytest.skip(f"{engine.name} has other users")
    with pytest.raises(errors.UserNotAvailable):
        await box.exec(say, user="1234")


# --- files


@pytest.mark.parametrize("path", ["a\0b", "", "x" * 5000])
async def test_a_path_that_is_none(box: aio.Session, path: str) -> None:
    for call in (lambda: box.write(path, ""), lambda: box.read(path), lambda: box.move("x", path)):
        await box.write("x", "")
        with pytest.raises((errors.InvalidRequest, errors.NameTooLong)):
            await call()


async def test_numbers_that_make_no_sense(box: aio.Session) -> None:
    await box.write("file", "x")
    calls: list[Callable[[], Any]] = [
        lambda: box.read("file", offset=-1),
        lambda: box.read("file", max_bytes=-1),
        lambda: box.list(max_entries=-1),
        lambda: box.write("file", "y", mode=0o10000),
        lambda: box.write("file", "y", mode=-1),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidRequest):
            await call()
    assert await box.read("file") == b"x"


# --- sessions and runs


@pytest.mark.parametrize(
    "options", [{"runtime": "cobol"}, {"workflow": "a\nb"}, {"session": "agent"}, {"session": ""}], ids=str
)
async def test_a_session_that_makes_no_sense(open_session: Open, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidRequest):
        async with open_session(**options):
            pass


async def test_an_engine_that_is_none(engine: Engine) -> None:
    with pytest.raises(errors.InvalidRequest, match=engine.name):
        await aio.run("1", engine="no-such-engine")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"code": " \n"}, errors.InvalidRequest),
        ({"runtime": "cobol"}, errors.InvalidRequest),
        ({"args": ["a\0b"]}, errors.InvalidRequest),
        ({"args": [LONG]}, errors.ArgumentTooLong),
        ({"env": {"A=B": "x"}}, errors.InvalidRequest),
        ({"timeout": 0}, errors.InvalidRequest),
        ({"files": {"../x": ""}}, errors.PathNotAllowed),
        ({"files": {"/etc/x": ""}}, errors.PathNotAllowed),
        ({"files": {"a\0b": ""}}, errors.InvalidRequest),
        ({"files": {"x": bytes(2000)}, "limits": Limits(max_file_size_bytes=1000)}, errors.FileTooLarge),
        ({"files": {f"{n}": "" for n in range(60)}, "limits": Limits(max_files=50)}, errors.TooManyFiles),
        ({"network": True}, errors.PolicyError),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_run_that_makes_no_sense(
    engine: Engine, code: Callable[[str], str], options: dict[str, Any], error: type[Exception]
) -> None:
    options = {"code": code("where"), **options}
    with pytest.raises(error) as caught:
        await aio.run(**options, engine=engine.name)
    assert isinstance(caught.value, errors.SandboxError)
    assert caught.value.code
    assert len(str(caught.value)) > 20, "it says something"


async def test_what_an_engine_cannot_do_is_refused_by_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT", "true")
    claimed = (await engine.check()).capabilities
    wishes: dict[Capability, dict[str, Any]] = {
        Capability.IMAGES: {"image": "python:3.11-slim"},
        Capability.PACKAGES: {"packages": ["six"]},
        Capability.NETWORK_ON: {"network": True},
    }
    for capability, options in wishes.items():
        if capability not in claimed:
            with pytest.raises(errors.EngineUnavailable, match=capability.value):
                await aio.run("1", engine=engine.name, **options)


# --- a guest that is not what it should be: the same client, and a stream of our own


async def _open(hello: bytes) -> Connection:
    ours, theirs = pair()
    try:
        await theirs.send(hello)
        with anyio.fail_after(30):
            return await Connection.open(ours)
    finally:
        await theirs.aclose()
        await ours.aclose()


def _hello(version: int) -> bytes:
    hello = protocol.GuestHello(protocol=version, window=1 << 20, features=[], workspace="/w", arch="x86_64")
    return frame(0, Kind.MESSAGE, hello.model_dump_json().encode())


async def test_a_guest_of_this_version_is_understood() -> None:
    assert (await _open(_hello(protocol.PROTOCOL))).hello.workspace == "/w"


async def test_a_guest_of_another_version_is_named() -> None:
    with pytest.raises(errors.ProtocolMismatch, match="open it again"):
        await _open(_hello(protocol.PROTOCOL + 1))


@pytest.mark.parametrize(
    "words",
    [frame(0, Kind.MESSAGE, b"{}"), frame(0, Kind.MESSAGE, b"\xff"), b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    ids=["another", "garbage", "http"],
)
async def test_a_guest_that_is_none_is_an_error(words: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        await _open(words)


async def test_a_guest_that_hangs_up_is_lost() -> None:
    ours, theirs = pair()
    await theirs.aclose()
    with pytest.raises(errors.SessionLost):
        await Connection.open(ours)
    await ours.aclose()

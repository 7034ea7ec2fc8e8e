"""The engine `fake` as its users see it: scripts, clocks, and what it tells them when something is not scripted."""

from __future__ import annotations

import threading

import anyio
import pytest

import holdfast
from holdfast import EndCause, aio, engines, errors
from holdfast.abc import Capability
from holdfast.engines.fake import FakeCall, FakeClock, FakeEngine


@pytest.mark.anyio
async def test_a_fixed_answer() -> None:
    with FakeEngine() as fake:
        fake.reply("pytest", stdout="3 passed\n")
        fake.reply("make 2>&1 | tail", stdout="ok\n", stderr="warned\n", exit_code=2)
        async with aio.open_session(engine="fake") as box:
            assert (await box.exec(["pytest", "-q"])).stdout == "3 passed\n"
            assert (await box.exec("pytest -q 'a b'")).ok
            made = await box.exec("make 2>&1 | tail")
    assert (made.stdout, made.stderr, made.exit_code) == ("ok\n", "warned\n", 2)
    assert [call.argv for call in fake.calls][:2] == [("pytest", "-q"), ("pytest", "-q", "a b")]
    assert fake.calls[2].shell == "make 2>&1 | tail"


@pytest.mark.anyio
async def test_a_program_has_its_workspace() -> None:
    with FakeEngine() as fake:

        @fake.program("greet")
        async def greet(call: FakeCall) -> int:
            call.files.write("out/greeted.txt", call.argv[1])
            call.stdout.write(f"{call.cwd} {call.env['LANG']} {call.files.list('out').entries[0].path}\n")
            return 0

        async with aio.open_session(engine="fake") as box:
            assert (await box.exec("greet Ann")).stdout == "/workspace C.UTF-8 out/greeted.txt\n"
            assert await box.read_text("out/greeted.txt") == "Ann"


@pytest.mark.anyio
async def test_code_has_one_answer_for_all_runtimes() -> None:
    with FakeEngine() as fake:

        @fake.on_code
        def answer(call: FakeCall) -> None:
            call.stdout.write(f"{call.argv[0]}: {call.code}")

        assert (await aio.run("print(1)", engine="fake")).stdout == "python3: print(1)"
        assert (await aio.run("echo 1", runtime="bash", engine="fake")).stdout == "bash: echo 1"
        async with aio.open_session(engine="fake") as box:
            await box.write("src/main.py", "print(2)")
            assert (await box.exec("python main.py", cwd="src")).stdout == "python: print(2)"
            assert (await box.exec(["node", "-e", "3"])).stdout == "node: 3"
            assert (await box.exec("python missing.py")).exit_code == 2
        fake.reply("python3", stdout="a program of this name comes first")
        assert (await aio.run("print(1)", engine="fake")).stdout.startswith("a program")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["pytest"], "@fake.program('pytest')"),
        ("pytest -q", "@fake.program('pytest')"),
        ("ls | wc", "@fake.program('ls | wc')"),
        ("echo $HOME", "register this line"),
        ("echo 'unclosed", "register this line"),
        (["python3", "main.py"], "@fake.on_code"),
    ],
)
@pytest.mark.anyio
async def test_what_is_not_scripted_says_how(command: str | list[str], hint: str) -> None:
    with FakeEngine() as fake:
        fake.reply("echo")
        async with aio.open_session(engine="fake") as box:
            with pytest.raises(errors.CommandNotFound) as caught:
                await box.exec(command)
            assert hint in str(caught.value)
            assert (await box.exec("echo 'a | b' \"c;d\"")).ok, "what is quoted is no syntax"


@pytest.mark.anyio
async def test_a_program_that_raises_fails_like_python() -> None:
    with FakeEngine() as fake:

        @fake.program("bad")
        def bad(call: FakeCall) -> int:
            raise ValueError("of the script")

        @fake.program("leave")
        def leave(call: FakeCall) -> int:
            raise SystemExit(7)

        async with aio.open_session(engine="fake") as box:
            result = await box.exec("bad")
            assert (result.exit_code, "ValueError: of the script" in result.stderr) == (1, True)
            assert (await box.exec("leave")).exit_code == 7


@pytest.mark.anyio
async def test_an_end_that_only_a_kernel_has() -> None:
    with FakeEngine() as fake:

        @fake.program("eat")
        def eat(call: FakeCall) -> int:
            call.stdout.write("before")
            call.die(9, EndCause.OOM)

        async with aio.open_session(engine="fake") as box:
            result = await box.exec("eat")
    assert (result.end_cause, result.signal, result.exit_code, result.stdout) == (EndCause.OOM, 9, None, "before")


@pytest.mark.anyio
async def test_a_loop_without_await_ends_when_it_writes() -> None:
    with FakeEngine() as fake:

        @fake.program("yes")
        async def yes(call: FakeCall) -> int:
            await call.sleep(0)
            while True:
                call.stdout.write("y\n")
                if len(fake.calls) == 1:
                    await call.sleep(0)

        async with aio.open_session(engine="fake") as box:
            result = await box.exec("yes", timeout=0.2, max_stdout_bytes=10)
    assert (result.end_cause, result.stdout, result.truncated) == (EndCause.TIMEOUT, "y\ny\ny\ny\ny\n", True)


@pytest.mark.anyio
async def test_time_passes_when_the_test_says_so() -> None:
    clock = FakeClock()
    with FakeEngine(clock=clock) as fake:

        @fake.program("nap")
        async def nap(call: FakeCall) -> None:
            await call.sleep(600)

        async with aio.open_session(workflow="w", engine="fake", idle_timeout=1800) as box:
            started = await box.start("nap", timeout=7200)
            clock.advance(599)
            with pytest.raises(TimeoutError):
                await started.wait(0.1)
            clock.advance(1)
            result = await started.wait(30)
            assert (result.ok, result.duration_ms) == (True, 600_000)
            clock.advance(1799)
            await box.list()
            late = await box.start("nap", timeout=300)
            clock.advance(300)
            assert (await late.wait(30)).end_cause is EndCause.TIMEOUT
            clock.advance(1800)
            with pytest.raises(errors.SessionError):
                await box.list()
        assert await aio.list_sessions("fake") == []


@pytest.mark.anyio
async def test_a_clock_that_jumps_does_not_make_a_session_immortal() -> None:
    clock = FakeClock()
    with FakeEngine(clock=clock) as fake:
        fake.reply("true")
        async with aio.open_session(workflow="w", engine="fake", idle_timeout=60, max_lifetime=100) as box:
            for _ in range(9):
                clock.advance(10)
                assert (await box.exec("true")).ok
            clock.advance(10)
            with pytest.raises(errors.SessionError):
                await box.exec("true")


@pytest.mark.anyio
async def test_claims_are_for_tests_of_wishes() -> None:
    with FakeEngine(), pytest.raises(errors.EngineUnavailable, match="images"):
        await aio.run("1", image="python:3.11-slim", engine="fake")
    with FakeEngine(claim=[Capability.IMAGES]) as fake:
        fake.on_code(lambda call: None)
        async with aio.open_session(image="python:3.11-slim", engine="fake") as box:
            assert box.effective.image == "python:3.11-slim"


@pytest.mark.anyio
async def test_what_it_cannot_hold_is_told() -> None:
    with FakeEngine() as fake:
        status = await fake.check()
        assert status.available
        assert Capability.REAL_PROCESSES not in status.capabilities
        async with aio.open_session(engine="fake") as box:
            assert {"memory_mb", "processes", "cpu_millicores"} <= set(box.effective.not_held)


def test_it_is_the_engine_of_its_name_for_a_while() -> None:
    with FakeEngine() as outer:
        with FakeEngine() as inner:
            assert engines.engine("fake") is inner
        assert engines.engine("fake") is outer
    assert engines.engine("fake") not in (inner, outer)
    assert not any("fake" in order for order in engines.AUTOMATIC.values())


def test_it_works_without_await_and_across_event_loops() -> None:
    with FakeEngine() as fake:
        release = threading.Event()

        @fake.program("wait")
        async def wait(call: FakeCall) -> int:
            while not release.is_set():
                await call.sleep(0.01)
            call.stdout.write("released")
            return 0

        async def elsewhere(exec_id: str) -> str:
            async with aio.open_session(workflow="w", engine="fake", create=False) as box:
                with pytest.raises(TimeoutError):
                    await box.process(exec_id).wait(0.05)
                release.set()
                return (await box.process(exec_id).wait(30)).stdout

        with holdfast.open_session(workflow="w", engine="fake") as box:
            started = box.start("wait")  # in the loop of the blocking surface
            assert anyio.run(elsewhere, started.id, backend="trio") == "released"
            assert box.processes()[0].ended is not None
            box.close()


def test_a_program_ends_with_its_event_loop() -> None:
    with FakeEngine() as fake:

        @fake.program("forever")
        async def forever(call: FakeCall) -> None:
            await call.sleep(3600)

        async def start() -> str:
            async with aio.open_session(workflow="w", engine="fake") as box:
                await box.write("kept", "x")
                return (await box.start("forever")).id

        async def look(exec_id: str) -> tuple[EndCause, bytes]:
            async with aio.open_session(workflow="w", engine="fake", create=False) as box:
                return (await box.process(exec_id).wait(30)).end_cause, await box.read("kept")

        for backend in ("asyncio", "trio"):
            exec_id = anyio.run(start, backend=backend)
            assert anyio.run(look, exec_id, backend=backend) == (EndCause.LOST, b"x")

"""Test your agent without a sandbox: real files in memory, and programs that you script.

    import holdfast
    from holdfast.engines.fake import FakeCall, FakeEngine

    with FakeEngine() as fake:                        # it is the engine "fake" while the block runs
        fake.reply("pytest -q", stdout="3 passed\\n")  # a whole line, or one program, with a fixed answer

        @fake.program("greet")                        # a program by name; async or not
        async def greet(call: FakeCall) -> int:
            call.stdout.write(f"hello {call.argv[1]}\\n")
            call.files.write("greeted.txt", call.argv[1])
            await call.sleep(0.1)
            return 0

        @fake.on_code                                 # what answers for code: holdfast.run, python3 main.py …
        def answer(call: FakeCall) -> None:
            call.stdout.write("42\\n" if call.code == "print(6 * 7)" else "?\\n")

        holdfast.run("print(6 * 7)", engine="fake").stdout            # "42\\n"
        with holdfast.open_session(engine="fake") as box:
            box.exec("greet Ann").stdout                              # "hello Ann\\n"
            box.read_text("greeted.txt")                              # "Ann"
        fake.calls[-1].argv                                           # ("greet", "Ann")

Code that names no engine uses it when HOLDFAST_ENGINE=fake is set; `auto` never chooses it.

It speaks the guest's protocol beneath the same client, so sessions, sharing, timeouts, kills, cancellation, output caps
and every error are those of a real engine. What it is not: a shell (no pipes, no variables; register the line), a
kernel (no memory, no processes, no background programs), or a guard: a scripted program is your own Python.
"""

from __future__ import annotations

from .call import FakeCall as FakeCall
from .call import FakeOutput as FakeOutput
from .call import FakeStdin as FakeStdin
from .call import Program as Program
from .engine import FakeEngine as FakeEngine
from .files import FakeFiles as FakeFiles
from .waiting import FakeClock as FakeClock

__all__ = ["FakeCall", "FakeClock", "FakeEngine", "FakeFiles", "FakeOutput", "FakeStdin", "Program"]

"""The programs of the conformance suite: each written twice, for engines that run programs and for `fake`.

A test asks the fixture `probe` for the argv of one, or `code` for its source, and reads the same for every engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.engines.fake import FakeCall, FakeEngine

Fake = Callable[..., Awaitable[int | None]]


@dataclass(frozen=True)
class Probe:
    """One program: Python source that reads `sys.argv`, and what stands for it where nothing is real."""

    source: str
    fake: Fake | None


PROBES: dict[str, Probe] = {}

_HEAD = """
import os, signal, sys, time
out, err, args = sys.stdout.buffer, sys.stderr.buffer, sys.argv[1:]
def ready():
    out.write(b"ready\\n"); out.flush()
"""


def _probe(source: str) -> Callable[[Fake], Fake]:
    def register(fake: Fake) -> Fake:
        PROBES[fake.__name__] = Probe(_HEAD + source, fake)
        return fake

    return register


def _real(name: str, source: str) -> None:
    PROBES[name] = Probe(_HEAD + source, None)


def install(engine: FakeEngine) -> None:
    """Register the fake twins: as programs, and as code."""

    def program(name: str, fake: Fake) -> Any:
        async def run(call: FakeCall) -> int | None:
            return await fake(call, *call.argv[1:])

        return engine.program(name)(run)

    for name, probe in PROBES.items():
        if probe.fake is not None:
            program(name, probe.fake)

    async def code(call: FakeCall) -> int | None:
        found = PROBES[call.code or ""].fake
        assert found is not None
        return await found(call, *call.argv[2:])

    engine.on_code(code)


# --- what goes in and what comes out


@_probe("out.write(args[0].encode()); err.write(args[1].encode()); sys.exit(int(args[2]))")
async def say(call: FakeCall, out: str, err: str, code: str) -> int:
    """Writes its first argument to stdout, its second to stderr, exits with its third."""
    call.stdout.write(out)
    call.stderr.write(err)
    return int(code)


@_probe("out.write(b'\\n'.join(os.fsencode(one).hex().encode() for one in args))")
async def show(call: FakeCall, *args: str) -> None:
    """Writes its arguments, each as a line of hex digits."""
    call.stdout.write("\n".join(os.fsencode(one).hex() for one in args))


@_probe("out.write(os.environb.get(args[0].encode(), b'(none)'))")
async def variable(call: FakeCall, name: str) -> None:
    """Writes a variable of its environment."""
    call.stdout.write(call.env.get(name, "(none)"))


@_probe("out.write(os.getcwd().encode())")
async def where(call: FakeCall) -> None:
    """Writes its working directory."""
    call.stdout.write(call.cwd)


@_probe("import shutil; shutil.copyfileobj(sys.stdin.buffer, out)")
async def cat(call: FakeCall) -> None:
    """Copies stdin to stdout."""
    while data := await call.stdin.read(65536):
        call.stdout.write(data)


@_probe("ready()\nfor line in sys.stdin.buffer: out.write(b'got ' + line); out.flush()")
async def lines(call: FakeCall) -> None:
    """Answers each line of stdin at once."""
    call.stdout.write("ready\n")
    while line := await call.stdin.readline():
        call.stdout.write(b"got " + line)


@_probe("out.write(bytes(range(256)))")
async def every_byte(call: FakeCall) -> None:
    """Writes each of the 256 bytes once."""
    call.stdout.write(bytes(range(256)))


@_probe("out.write(('\\U0001f980' * int(args[0])).encode())")
async def wide(call: FakeCall, count: str) -> None:
    """Writes a character of four bytes so many times."""
    call.stdout.write("\U0001f980" * int(count))


@_probe("""
err.write(b"start\\n"); err.flush()
piece = b"0123456789" * 1000
for _ in range(int(args[0]) // 10): out.write(piece)
out.flush()
""")
async def flood(call: FakeCall, kilobytes: str) -> None:
    """Writes so many times 1,000 bytes (of a pattern of ten) to stdout, and one line to stderr."""
    call.stderr.write("start\n")
    for _ in range(int(kilobytes) // 10):
        call.stdout.write(b"0123456789" * 1000)
        await call.sleep(0)


@_probe("""
for number in range(int(args[0])):
    (err if number % 2 else out).write(b"%d\\n" % number); out.flush(); err.flush(); time.sleep(0.05)
""")
async def ticks(call: FakeCall, count: str) -> None:
    """Writes numbers, even ones to stdout and odd ones to stderr, with a pause after each."""
    for number in range(int(count)):
        (call.stderr if number % 2 else call.stdout).write(f"{number}\n")
        await call.sleep(0.05)


# --- how it goes on and how it ends


@_probe("ready(); time.sleep(3600)")
async def forever(call: FakeCall) -> None:
    """Says that it is ready, and goes on for an hour."""
    call.stdout.write("ready\n")
    await call.sleep(3600)


@_probe("ready(); time.sleep(float(args[0])); out.write(b'over\\n')")
async def rest(call: FakeCall, seconds: str) -> None:
    """Says that it is ready, waits, and says that it is over."""
    call.stdout.write("ready\n")
    await call.sleep(float(seconds))
    call.stdout.write("over\n")


@_probe("""
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda number, frame: (out.write(b"no\\n"), out.flush()))
ready()
while True: time.sleep(1)
""")
async def stubborn(call: FakeCall) -> None:
    """Says no to the signals that ask it to end."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        call.trap(number, lambda: call.stdout.write("no\n"))
    call.stdout.write("ready\n")
    await call.sleep(3600)


@_probe("os.kill(os.getpid(), int(args[0])); time.sleep(60)")
async def die(call: FakeCall, number: str) -> None:
    """Ends by a signal of its own."""
    call.die(int(number))


# --- files, as a program of the sandbox makes them


@_probe("""
with open(args[0], "wb") as file:
    for _ in range(int(args[1])): file.write(bytes(1 << 20))
""")
async def fill(call: FakeCall, path: str, megabytes: str) -> None:
    """Writes a file of so many megabytes."""
    call.files.write(path, bytes(int(megabytes) << 20))


@_probe("""
os.makedirs(args[0], exist_ok=True)
for number in range(int(args[1])):
    with open(os.path.join(args[0], str(number)), "wb") as file: file.write(bytes(1 << 20))
""")
async def heap(call: FakeCall, path: str, count: str) -> None:
    """Makes so many files of a megabyte in a folder; a full disk makes it fail."""
    for number in range(int(count)):
        call.files.write(f"{path}/{number}", bytes(1 << 20))


@_probe("""
os.makedirs(args[0], exist_ok=True)
for number in range(int(args[1])): open(os.path.join(args[0], str(number)), "wb").close()
""")
async def litter(call: FakeCall, path: str, count: str) -> None:
    """Makes so many empty files in a folder."""
    for number in range(int(count)):
        call.files.write(f"{path}/{number}", b"")


@_probe("os.symlink(args[0], args[1])")
async def link(call: FakeCall, target: str, path: str) -> None:
    """Makes a symbolic link."""
    call.files.symlink(target, path)


@_probe("os.chmod(args[0], int(args[1], 8))")
async def chmod(call: FakeCall, path: str, mode: str) -> None:
    """Changes a mode."""
    call.files.chmod(path, int(mode, 8))


# --- what only real processes can do

_real(
    "escape",
    """
def daemon():
    os.setsid()
    if os.fork(): os._exit(0)
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    for number in range(3): os.close(number)
    while True: time.sleep(1)
for _ in range(4):
    if not os.fork(): daemon()
ready()
if args[0] == "stay": time.sleep(3600)
""",
)
"""Leaves four daemons: double fork, own session, no files, all signals ignored; stays or ends."""

_real(
    "refork",
    """
if not os.fork():
    while True:
        if os.fork(): os._exit(0)
ready(); time.sleep(3600)
""",
)
"""A chain of processes that re-fork for ever: none lives long enough to be killed by its number."""

_real(
    "background",
    """
if not os.fork():
    time.sleep(float(args[0])); out.write(b"late\\n"); out.flush(); os._exit(0)
out.write(b"hi\\n")
""",
)
"""Ends at once, and leaves a child that holds its stdout and writes to it later."""

_real(
    "eat",
    """
held = []
while len(held) < int(args[0]): held.append(bytearray(os.urandom(1 << 10) * 1024))
out.write(b"fed\\n")
""",
)
"""Takes so many megabytes of memory."""

_real(
    "multiply",
    """
made = 0
try:
    while made < int(args[0]):
        if not os.fork(): time.sleep(3600)
        made += 1
except OSError as error:
    err.write(str(error).encode()); sys.exit(1)
out.write(b"%d\\n" % made)
""",
)
"""Starts so many processes; the first that is refused makes it fail."""

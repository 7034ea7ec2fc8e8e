"""How many instructions does the client need for one exec, and for the import?

Times on a shared machine are noise; the number of instructions hardly moves, so a change of the hot path shows. Counted
with valgrind's callgrind, or with `perf stat` where there is a counter: twice, with few and with many execs in a
session of `local`, so that what happens once falls out. Printed, never asserted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FEW, MANY = 20, 220
EXECS = """
import sys, anyio
from holdfast import aio

async def main():
    async with aio.open_session(engine="local") as box:
        for _ in range(int(sys.argv[1])):
            await box.exec(["/usr/bin/true"])

anyio.run(main)
"""
IMPORT = "import sys\nif sys.argv[1] != '0': import holdfast.aio"


def counted_by_perf(code: str, argument: int) -> int | None:
    if shutil.which("perf") is None:
        return None
    command = ["perf", "stat", "-x,", "-e", "instructions:u", "--no-inherit", sys.executable, "-c", code, str(argument)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    found = re.search(r"^(\d+),.*instructions", done.stderr, re.MULTILINE)
    return int(found[1]) if found and not done.returncode else None


def counted_by_callgrind(code: str, argument: int) -> int | None:
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", code]
        done = subprocess.run(
            [*command, str(argument)], capture_output=True, text=True, check=False, env=_environment()
        )
        found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    return int(found[1]) if found and not done.returncode else None


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def main() -> None:
    for name, count in (("perf", counted_by_perf), ("callgrind", counted_by_callgrind)):
        nothing = count(IMPORT, 0)
        if nothing is None:
            continue
        print(f"instructions of the client, by {name}:")
        imported = count(IMPORT, 1)
        few, many = count(EXECS, FEW), count(EXECS, MANY)
        if imported is not None:
            print(f"  import holdfast.aio      {imported - nothing:>14,}")
        if few is not None and many is not None:
            print(f"  one exec of true         {(many - few) // (MANY - FEW):>14,}")
        return
    print("no instruction counts: neither `perf stat` has a counter here, nor is valgrind installed")


if __name__ == "__main__":
    main()

"""What does a one-shot run cost, compared with bubblewrap alone and with no sandbox?"""

from __future__ import annotations

import subprocess
import sys

from _measure import Row, in_turns, main
from bench_exec import ENVIRONMENT, PYTHON

from holdfast import aio

BUBBLEWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]
BUBBLEWRAP += ["--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]
BUBBLEWRAP += ["--ro-bind", sys.base_prefix, sys.base_prefix, "--", PYTHON, "-c", "pass"]


async def blocking(command: list[str]) -> None:
    subprocess.run(command, env=ENVIRONMENT, check=True)  # blocking is what is measured


async def measure(rounds: int) -> list[Row]:
    return await in_turns(
        {
            "host: python3 -c pass": lambda: blocking([PYTHON, "-c", "pass"]),
            "bwrap python3 -c pass": lambda: blocking(BUBBLEWRAP),
            "holdfast.run('pass')": lambda: aio.run("pass", engine="local"),
        },
        rounds,
        {"holdfast.run('pass')": ("bwrap python3 -c pass", "1.5x")},
    )


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=30)

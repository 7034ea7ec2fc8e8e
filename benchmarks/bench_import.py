"""How long does `import holdfast` take, beyond an empty Python?"""

from __future__ import annotations

import subprocess
import sys

from _measure import Row, in_turns, main


async def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)  # blocking is what is measured


async def measure(rounds: int) -> list[Row]:
    rows = await in_turns(
        {
            "python -c pass": lambda: python("pass"),
            "import holdfast": lambda: python("import holdfast"),
            "import holdfast.aio": lambda: python("import holdfast.aio"),
        },
        rounds,
    )
    empty = rows[0].median
    return [rows[0], *(Row(row.name, "ms", [s - empty for s in row.samples], goal="60 ms") for row in rows[1:])]


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=20)

"""What does it cost to move files in and out of an open session?"""

from __future__ import annotations

from _measure import Row, in_turns, main

from holdfast import aio

SMALL, LARGE = b"x" * 1024, b"x" * (1 << 20)


async def measure(rounds: int) -> list[Row]:
    async with aio.open_session(engine="local") as box:
        rows = await in_turns(
            {
                "write 1 KB": lambda: box.write("small", SMALL),
                "read 1 KB": lambda: box.read("small"),
                "write 1 MB": lambda: box.write("large", LARGE),
                "read 1 MB": lambda: box.read("large"),
            },
            rounds,
        )
    for row in rows[2:]:
        row.goal = "3 ms"
    return rows


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=60)

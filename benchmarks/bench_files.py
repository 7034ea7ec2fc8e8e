"""What does it cost to move files in and out of an open session?"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from _measure import Row, Work, chosen_engine, in_turns, main

from holdfast import aio

SMALL, LARGE = b"x" * 1024, b"x" * (1 << 20)
HUGE = 100 << 20


async def measure(rounds: int) -> list[Row]:
    async with aio.open_session(engine=chosen_engine()) as box:
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
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            return [*rows, *await _huge(box, Path(folder), max(3, rounds // 10))]


async def _huge(box: aio.Session, folder: Path, rounds: int) -> list[Row]:
    source, target = folder / "in", folder / "out"
    source.write_bytes(b"x" * HUGE)
    works: dict[str, Work] = {
        "upload 100 MB": lambda: box.upload(source, "huge"),
        "download 100 MB": lambda: box.download("huge", target),
    }
    goals: dict[str, tuple[str, str]] = {}
    if chosen_engine() == "docker":
        archive = _Archive(box, source, folder / "by-archive")
        works = {"put_archive 100 MB": archive.put, "get_archive 100 MB": archive.get, **works}
        goals = {
            "upload 100 MB": ("put_archive 100 MB", "1.2x"),
            "download 100 MB": ("get_archive 100 MB", "1.2x"),
        }
    return await in_turns(works, rounds, goals)


class _Archive:
    """The same by the archive API, from a file and to a file, onto the container's root: it does not see a tmpfs."""

    def __init__(self, box: aio.Session, source: Path, target: Path) -> None:
        import docker

        client: Any = docker.from_env()
        self._container = client.containers.get(box.key.sandbox_name)
        self._source, self._target = source, target

    async def put(self) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(self._source, "huge")
        self._container.put_archive("/root", buffer.getvalue())

    async def get(self) -> None:
        stream, _ = self._container.get_archive("/root/huge")
        with self._target.open("wb") as file:
            for piece in stream:
                file.write(piece)


if __name__ == "__main__":
    main(__doc__ or "", measure, rounds=60, engines=("local", "docker"))

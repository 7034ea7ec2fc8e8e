"""What does it cost to move a file into an open session, and out of it, from 1 KB to 1 GB?

Small files go as bytes in memory, as agents' tools send them; from 16 MB on they go from a file to a file, where the
peers that take bytes only are not measured.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from _floors import RawContainer, raw_container
from _measure import Contest, Row, Who, chosen_engines, main, quick
from _peers import Driver, peers

from holdfast import Limits, aio

KB, MB = 1 << 10, 1 << 20
SMALL = (KB, 32 * KB, MB)
LARGE = (16 * MB, 128 * MB, 1024 * MB)
LIMITS = Limits(workspace_mb=2200, max_file_size_bytes=1100 * MB)


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        boxes = {
            engine: await stack.enter_async_context(aio.open_session(engine=engine, limits=LIMITS))
            for engine in chosen_engines()
        }
        raw = stack.enter_context(raw_container()) if "docker" in boxes else None
        found = await stack.enter_async_context(peers("write", "read"))
        for size in SMALL:
            into, out = Contest("write", size), Contest("read", size)
            content = b"x" * size
            into.floor("host: a plain file", partial(_write, folder / "plain", content))
            out.floor("host: a plain file", partial(_read, folder / "plain"))
            for engine, box in boxes.items():
                into.ours(f"holdfast, {engine}", partial(box.write, "file", content))
                out.ours(f"holdfast, {engine}", partial(box.read, "file"))
            if raw:
                into.floor("Docker API: archive", partial(_put_bytes, raw, content))
                out.floor("Docker API: archive", partial(_get, raw))
            for peer in found:
                into.peer(_name(peer), partial(peer.time, "write", name="file", size=size))
                out.peer(_name(peer), partial(peer.time, "read", name="file", size=size))
            for contest in (into, out):
                rows += await contest.in_turns(rounds, 12)
        for size in LARGE[:1] if quick() else LARGE:
            rows += await _large(boxes, raw, folder, size, max(3, rounds // 8))
    return rows


async def _large(
    boxes: dict[str, aio.Session], raw: RawContainer | None, folder: Path, size: int, rounds: int
) -> list[Row]:
    source, target = folder / "in", folder / "out"
    with source.open("wb") as file:
        for _ in range(size // MB):
            file.write(b"x" * MB)
    warm: tuple[Who, ...] = () if size > 100 * MB else ("ours", "floor")
    into, out = Contest("write", size, warm_up=warm), Contest("read", size, warm_up=warm)
    into.floor("host: a plain file", partial(_copy, source, target))
    for engine, box in boxes.items():
        base = "Docker API: archive" if engine == "docker" else "host: a plain file"
        goal = "1.2x" if engine == "docker" else ""
        into.ours(f"holdfast, {engine}", partial(box.upload, source, "huge"), base, goal)
        out.ours(f"holdfast, {engine}", partial(box.download, "huge", target), base if raw else "", goal)
    if raw:
        into.floor("Docker API: archive", partial(_put_file, raw, source))
        out.floor("Docker API: archive", partial(_get_file, raw, target))
    return [row for contest in (into, out) for row in await contest.in_turns(rounds, 14)]


def _name(peer: Driver) -> str:
    return f"{peer.name}: bind mount" if peer.shares_files else peer.name


async def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def _read(path: Path) -> None:
    path.read_bytes()


async def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(MB):
            writer.write(piece)


async def _put_bytes(raw: RawContainer, content: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("file")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    raw.put("file", buffer.getvalue())


async def _get(raw: RawContainer) -> None:
    raw.get("file")


async def _put_file(raw: RawContainer, source: Path) -> None:
    """Onto the container's root: the archive API does not see a tmpfs."""
    with tempfile.TemporaryFile(dir="/var/tmp") as spool:
        with tarfile.open(fileobj=spool, mode="w") as tar:
            tar.add(source, "huge")
        spool.seek(0)
        assert raw.api.put_archive(raw.container.id, "/root", spool)


async def _get_file(raw: RawContainer, target: Path) -> None:
    stream, _ = raw.api.get_archive(raw.container.id, "/root/huge")
    with target.open("wb") as file:
        for piece in stream:
            file.write(piece)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=40, engines=("local", "docker"), quick_rounds=3)

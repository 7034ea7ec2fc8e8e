"""Files: written whole or not at all, read in pieces, listed with any name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
import pytest

from holdfast import aio, errors
from holdfast.results import FileKind, Listing

from . import host
from .conftest import ProbeArgv

pytestmark = pytest.mark.anyio

NAMES = [
    "plain",
    "with blank",
    " leading",
    "new\nline",
    "tab\t",
    "quote'\"",
    "-rf",
    "*",
    "%2e%2e",
    "back\\slash",
    "ü🦀",
    "not text \udcff\udcfe",
    "x" * 255,
    ".hidden",
]


def paths(listing: Listing) -> list[str]:
    return [entry.path for entry in listing.entries]


# --- writing and reading


@pytest.mark.parametrize("size", [0, 1, 256 << 10, (1 << 20) + 1, 5_000_000])
async def test_what_is_written_is_read(box: aio.Session, size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    entry = await box.write("file.bin", data)
    assert (entry.path, entry.kind, entry.size_bytes) == ("file.bin", FileKind.FILE, size)
    assert await box.read("file.bin") == data


async def test_text_is_utf8(box: aio.Session) -> None:
    await box.write("text", "grüße 🦀\r\n")
    assert await box.read("text") == "grüße 🦀\r\n".encode()
    assert await box.read_text("text") == "grüße 🦀\r\n"


async def test_missing_folders_are_made(box: aio.Session) -> None:
    await box.write("a/b/c/file", "x")
    assert (await box.stat("a/b/c")).kind is FileKind.DIRECTORY


async def test_a_path_may_be_absolute_beneath_the_workspace(box: aio.Session) -> None:
    await box.write(f"{box.effective.workspace}/a/../file", "x")
    assert await box.read("file") == b"x"


async def test_overwriting_is_allowed_or_not(box: aio.Session) -> None:
    await box.write("file", "old")
    with pytest.raises(errors.SandboxFileExists):
        await box.write("file", "new", overwrite=False)
    assert await box.read("file") == b"old"
    await box.write("file", "new")
    assert await box.read("file") == b"new"
    await box.write("other", "new", overwrite=False)
    assert await box.read("other") == b"new"


async def test_a_mode_is_set_kept_and_masked(box: aio.Session) -> None:
    assert (await box.write("file", "x")).mode == 0o644
    assert (await box.write("file", "x", mode=0o751)).mode == 0o751
    assert (await box.write("file", "y")).mode == 0o751, "a new content keeps the mode"
    assert (await box.write("file", "y", mode=0o4755)).mode == 0o755, "no setuid"
    assert (await box.stat("file")).mode == 0o755


async def test_a_program_and_the_session_see_the_same_files(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("fill", "made.bin", 1))).ok
    assert await box.read("made.bin") == bytes(1 << 20)


async def test_a_piece_of_a_file(box: aio.Session) -> None:
    await box.write("file", "0123456789")
    assert await box.read("file", offset=3) == b"3456789"
    assert await box.read("file", offset=3, max_bytes=2) == b"34"
    assert await box.read("file", offset=10) == b""
    assert await box.read("file", offset=99) == b""
    assert await box.read("file", max_bytes=0) == b""


async def test_64_megabytes_go_up_and_down(box: aio.Session, tmp_path: Path) -> None:
    block = hashlib.sha256(b"holdfast").digest() * 32768
    source, target = tmp_path / "up", tmp_path / "down"
    with source.open("wb") as file:
        for _ in range(64):
            file.write(block)
    copied = await box.upload(source, "in/big.bin", mode=0o600)
    assert (copied.files, copied.size_bytes, (await box.stat("in/big.bin")).mode) == (1, 64 << 20, 0o600)
    assert await box.read("in/big.bin", offset=(63 << 20) + 5, max_bytes=100) == block[5:105]
    assert (await box.download("in/big.bin", target)).size_bytes == 64 << 20
    assert target.read_bytes() == source.read_bytes()


async def test_a_download_that_fails_leaves_nothing(box: aio.Session, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(errors.SandboxFileNotFound):
        await box.download("missing", tmp_path / "old")
    assert host.names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


async def test_many_writers_do_not_mix(box: aio.Session) -> None:
    async def write(number: int) -> None:
        await box.write("one", bytes([number]) * 300_000)
        await box.write(f"many/{number}", bytes([number]) * 1000)

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write, number)
    content = await box.read("one")
    assert (len(content), len(set(content))) == (300_000, 1), "one of them, and all of it"
    assert len(await box.list("many")) == 10
    assert sorted(paths(await box.list())) == ["many", "one"], "no hidden part is left"


# --- listing


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_goes_there_and_back(box: aio.Session, name: str) -> None:
    await box.write(f"folder/{name}", "x")
    assert paths(await box.list("folder")) == [f"folder/{name}"]
    assert (await box.stat(f"folder/{name}")).path == f"folder/{name}"
    assert await box.read(f"folder/{name}") == b"x"
    await box.move(f"folder/{name}", f"{name}")
    await box.delete(name)
    assert paths(await box.list()) == ["folder"]


async def test_listing_is_flat_or_recursive(box: aio.Session) -> None:
    await box.write("a/b/c", "12345")
    await box.write("z", "")
    assert sorted(paths(await box.list())) == ["a", "z"]
    assert sorted(paths(await box.list("a"))) == ["a/b"]
    listing = await box.list(recursive=True)
    assert sorted(paths(listing)) == ["a", "a/b", "a/b/c", "z"]
    kinds = {entry.path: (entry.kind, entry.size_bytes) for entry in listing.entries}
    assert kinds["a/b/c"] == (FileKind.FILE, 5)
    assert kinds["a/b"][0] is FileKind.DIRECTORY


async def test_a_long_listing_is_complete_or_says_so(box: aio.Session, probe: ProbeArgv) -> None:
    assert (await box.exec(probe("litter", "many", 1200))).ok
    whole = await box.list("many")
    assert (len(whole), whole.truncated) == (1200, False)
    assert sorted(paths(whole)) == sorted(f"many/{number}" for number in range(1200))
    exact = await box.list("many", max_entries=1200)
    assert (len(exact), exact.truncated) == (1200, False)
    cut = await box.list(recursive=True, max_entries=700)
    assert (len(cut), cut.truncated) == (700, True)


async def test_an_empty_folder_is_an_empty_listing(box: aio.Session) -> None:
    assert (len(await box.list()), (await box.list()).truncated) == (0, False)
    await box.mkdir("empty")
    assert len(await box.list("empty")) == 0


# --- deleting, making, moving


async def test_deleting(box: aio.Session) -> None:
    await box.write("tree/a/b", "x")
    await box.write("file", "x")
    await box.delete("file")
    with pytest.raises(errors.DirectoryNotEmpty):
        await box.delete("tree")
    assert await box.read("tree/a/b") == b"x"
    await box.delete("tree", recursive=True)
    await box.mkdir("empty")
    await box.delete("empty")
    assert len(await box.list()) == 0


async def test_making_a_folder_twice_is_fine(box: aio.Session) -> None:
    assert (await box.mkdir("a/b")).kind is FileKind.DIRECTORY
    await box.write("a/b/c", "x")
    assert (await box.mkdir("a/b")).kind is FileKind.DIRECTORY
    assert await box.read("a/b/c") == b"x"


async def test_moving(box: aio.Session) -> None:
    await box.write("a/file", "x", mode=0o600)
    entry = await box.move("a/file", "new/place/file")
    assert (entry.path, entry.mode, entry.size_bytes) == ("new/place/file", 0o600, 1)
    await box.move("new", "newer")
    assert await box.read("newer/place/file") == b"x"
    assert sorted(paths(await box.list())) == ["a", "newer"]


async def test_moving_onto_something_is_allowed_or_not(box: aio.Session) -> None:
    await box.write("source", "new")
    await box.write("there", "old")
    with pytest.raises(errors.SandboxFileExists):
        await box.move("source", "there")
    assert await box.read("there") == b"old"
    await box.move("source", "there", overwrite=True)
    assert await box.read("there") == b"new"
    assert paths(await box.list()) == ["there"]

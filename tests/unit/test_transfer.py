"""A sandbox that lies about its files: whatever it lists, nothing is written outside of the target."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import pytest

from holdfast import errors
from holdfast.code import transfer
from holdfast.code.hosttree import HostTree
from holdfast.guest import protocol
from holdfast.guest.protocol import FileKind, Kind
from tests.unit.scripted import Guest, connected

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def entry(path: str, kind: FileKind = FileKind.FILE) -> protocol.FileEntry:
    return protocol.FileEntry(path=path, kind=kind, size_bytes=1, mode=0o777, modified_ms=0)


def found(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def serve(guest: Guest, base: str, listed: list[protocol.FileEntry], endless: bool = False) -> None:
    """Say that `base` is a folder, that it holds `listed`, and that each file holds one byte, or very many."""
    while True:
        stream, kind, payload = await guest.hear()
        if kind is Kind.RESET:
            guest.say(stream, protocol.Done())
        if kind is not Kind.MESSAGE:
            continue
        if b'"file_stat"' in payload:
            guest.say(stream, protocol.FileDone(entry=entry(base, FileKind.DIRECTORY)))
        elif b'"file_list"' in payload:
            page = protocol.FilePage(entries=listed)
            guest.send(stream, Kind.EVENT, page.model_dump_json().encode())
            guest.say(stream, protocol.FileListed(count=len(listed), truncated=False))
        elif b'"file_read"' in payload:
            guest.send(stream, Kind.DATA, b"x" * (100_000 if endless else 1))
            if not endless:
                guest.say(stream, protocol.FileSent(entry=entry("x"), sent_bytes=1, truncated=False))


async def fetched(
    target: Path, base: str, listed: list[protocol.FileEntry], endless: bool = False
) -> transfer.Copied | Exception:
    async with connected() as (client, guest), anyio.create_task_group() as tasks:
        tasks.start_soon(serve, guest, base, listed, endless)
        try:
            return await transfer.download(client, base, target, None, 100, 50_000)
        except errors.SandboxError as error:
            return error
        finally:
            tasks.cancel_scope.cancel()
    raise AssertionError


@pytest.mark.parametrize(
    "name",
    ["../x", "out/../x", "out/../../x", "/x", "out//x", "out/", "out", "other/x", "out/./x", "out/a/../x", "", "outx"],
)
@pytest.mark.parametrize("kind", [FileKind.FILE, FileKind.DIRECTORY])
async def test_names_that_lead_elsewhere_are_refused(name: str, kind: FileKind, tmp_path: Path) -> None:
    said = await fetched(tmp_path / "t", "out", [entry("out/good"), entry(name, kind)])
    assert isinstance(said, errors.ProtocolError)
    assert not [path for path in found(tmp_path) if path.endswith("x")]


async def test_names_that_are_as_they_should_be(tmp_path: Path) -> None:
    listed = [entry("out/a", FileKind.DIRECTORY), entry("out/a/..."), entry("out/b/c"), entry("out/-rf")]
    said = await fetched(tmp_path / "t", "out", listed)
    assert isinstance(said, transfer.Copied) and said.files == 3
    assert found(tmp_path / "t") == ["-rf", "a", "a/...", "b", "b/c"]


async def test_a_file_under_the_name_of_a_folder(tmp_path: Path) -> None:
    listed = [entry("out/a", FileKind.DIRECTORY), entry("out/a")]
    with pytest.raises(OSError, match="a"):
        raise await fetched_error(tmp_path, listed)
    assert "part" not in str(found(tmp_path))


async def fetched_error(tmp_path: Path, listed: list[protocol.FileEntry]) -> BaseException:
    try:
        await fetched(tmp_path / "t", "out", listed)
    except ExceptionGroup as group:
        return group.exceptions[0]
    raise AssertionError("it was copied")


async def test_a_file_without_an_end(tmp_path: Path) -> None:
    said = await fetched(tmp_path / "t", "out", [entry("out/a")], endless=True)
    assert isinstance(said, errors.FileTooLarge)
    assert found(tmp_path) == ["t"]


def test_a_folder_that_becomes_a_link_meanwhile(tmp_path: Path) -> None:
    """Somebody on this machine swaps a folder of the target for a link, again and again."""
    target, outside = tmp_path / "target", tmp_path / "outside"
    (target / "d").mkdir(parents=True)
    outside.mkdir()
    (target / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (target / "d").rename(target / "real")
            (target / "link").rename(target / "d")
            (target / "d").rename(target / "link")
            (target / "real").rename(target / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    tree = HostTree(target)
    written = refused = 0
    try:
        while written < 100 or refused < 5:
            try:
                with tree.create(("d", "file"), 0o644) as file:
                    file.write(b"x")
                    file.keep()
                written += 1
            except OSError:
                refused += 1
    finally:
        stop.set()
        thread.join()
        tree.close()
    assert not list(outside.iterdir())


def test_a_file_that_becomes_a_link_after_it_was_listed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "file").write_text("x")
    tree = HostTree(folder)
    assert [file.parts for file in tree.list(10).entries] == [("file",)]
    os.close(tree.open(("file",)))
    (folder / "file").unlink()
    (folder / "file").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.PathNotAllowed, match="link"):
        tree.open(("file",))
    (folder / "file").unlink()
    os.mkfifo(folder / "file")
    with pytest.raises(errors.PathNotAllowed, match="regular"):
        tree.open(("file",))
    tree.close()

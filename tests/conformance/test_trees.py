"""Whole trees go in and out: all that can be copied, nothing through links, within bounds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest

from holdfast import Limits, aio, errors
from holdfast.abc import Capability

from . import host
from .conftest import Open
from .requires import requires

pytestmark = pytest.mark.anyio


def tree_of(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Each path beneath a folder with its mode, and with the contents of files."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in folder.rglob("*")
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "sub/deep/er").mkdir(parents=True)
    (folder / "empty/below").mkdir(parents=True)
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "secret").write_bytes(b"s")
    (folder / "secret").chmod(0o600)
    (folder / "sub/nothing").touch(0o644)
    (folder / "sub/deep/er/large").write_bytes(bytes(range(256)) * 5000)
    (folder / "not text \udcff").write_text("a name")
    return folder


async def test_a_tree_goes_up_and_comes_back(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    up = await box.upload(tree, "in/")
    assert (up.files, up.folders, up.skipped) == (5, 5, ())
    assert (await box.stat("in/run.sh")).mode == 0o755
    assert (await box.stat("in/secret")).mode == 0o600
    down = await box.download("in", tmp_path / "back")
    assert (down.files, down.folders, down.size_bytes, down.skipped) == (5, 5, up.size_bytes, ())
    assert tree_of(tmp_path / "back") == tree_of(tree)


async def test_contents_go_into_what_is_there(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    await box.write("in/kept", "kept")
    await box.write("in/secret", "old")
    await box.upload(tree, "in")
    assert (await box.read("in/kept"), await box.read("in/secret")) == (b"kept", b"s")
    target = tmp_path / "back"
    target.mkdir()
    (target / "kept").write_text("mine")
    (target / "other").write_text("mine")
    await box.download("in", target)
    assert ((target / "kept").read_text(), (target / "other").read_text()) == ("kept", "mine")


async def test_the_whole_workspace_by_any_of_its_names(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    await box.upload(tree, ".")
    for number, name in enumerate((".", "/workspace", "sub/..")):
        await box.download(name, tmp_path / str(number))
        assert tree_of(tmp_path / str(number)) == tree_of(tree)


async def test_a_file_goes_into_a_folder_under_its_own_name(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    await box.upload(tree / "run.sh", "bin/")
    assert (await box.stat("bin/run.sh")).mode == 0o755
    (tmp_path / "here").mkdir()
    await box.download("bin/run.sh", tmp_path / "here")
    assert host.names(tmp_path / "here") == ["run.sh"]


async def test_progress_is_told(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    for source, name in ((tree, "tree"), (tree / "sub/deep/er/large", "file")):
        up: list[tuple[int, int | None]] = []
        down: list[tuple[int, int | None]] = []
        copied = await box.upload(source, name, on_progress=lambda *told, up=up: up.append(told))
        await box.download(name, tmp_path / name, on_progress=lambda *told, down=down: down.append(told))
        for told in (up, down):
            assert [done for done, _ in told] == sorted(done for done, _ in told)
            assert told[-1] == (copied.size_bytes, copied.size_bytes)
            assert len(told) > 1


async def test_a_thousand_small_files(box: aio.Session, tmp_path: Path) -> None:
    source = tmp_path / "many"
    for number in range(1000):
        file = source / f"{number % 10}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(number))
    assert (await box.upload(source, "many")).files == 1000
    assert (await box.download("many", tmp_path / "back")).files == 1000
    assert tree_of(tmp_path / "back") == tree_of(source)


async def test_links_and_pipes_of_this_machine_are_skipped_and_named(
    box: aio.Session, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("outside")
    (tree / "link").symlink_to(tmp_path / "outside/file")
    (tree / "sub/folder").symlink_to(tmp_path / "outside")
    os.mkfifo(tree / "pipe")
    copied = await box.upload(tree, "in")
    assert {Path(path).name for path in copied.skipped} == {"link", "folder", "pipe"}
    assert copied.files == 5
    names = {entry.path for entry in await box.list(recursive=True)}
    assert not names & {"in/link", "in/sub/folder", "in/sub/folder/file", "in/pipe"}
    # what the caller names may be a link
    (tmp_path / "to-tree").symlink_to(tree)
    assert (await box.upload(tmp_path / "to-tree", "again")).files == 5


@requires(Capability.REAL_PROCESSES)
async def test_links_and_pipes_of_a_sandbox_are_skipped_and_named(box: aio.Session, tmp_path: Path) -> None:
    await box.write("out/file", "x")
    assert (await box.exec("cd out; ln -s /etc/passwd link; ln -s .. up; ln -s file inside; mkfifo pipe")).ok
    copied = await box.download("out", tmp_path / "out")
    assert set(copied.skipped) == {"out/link", "out/up", "out/inside", "out/pipe"}
    assert host.names(tmp_path / "out") == ["file"]


async def test_more_files_than_allowed(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.TooManyFiles):
        await box.upload(tree, "in", max_files=9)
    assert len(await box.list()) == 0
    await box.upload(tree, "in", max_files=10)
    with pytest.raises(errors.TooManyFiles):
        await box.download("in", tmp_path / "some", max_files=9)
    assert (await box.download("in", tmp_path / "all", max_files=10)).files == 5


async def test_more_bytes_than_allowed(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    size = (await box.upload(tree, "in")).size_bytes
    with pytest.raises(errors.FileTooLarge):
        await box.download("in", tmp_path / "out", max_bytes=size - 1)
    assert "part" not in str(tree_of(tmp_path))
    assert (await box.download("in", tmp_path / "out", max_bytes=size)).size_bytes == size


@requires(Capability.REAL_PROCESSES)
async def test_a_file_of_holes_does_not_fill_this_machine(open_session: Open, tmp_path: Path) -> None:
    async with open_session(limits=Limits(workspace_mb=8)) as box:
        assert (await box.exec("truncate -s 200M holes")).ok
        with pytest.raises(errors.FileTooLarge, match="max_bytes"):
            await box.download("holes", tmp_path / "holes")
        assert host.names(tmp_path) == []
        copied = await box.download("holes", tmp_path / "holes", max_bytes=200 << 20)
        assert copied.size_bytes == (tmp_path / "holes").stat().st_size == 200 << 20


async def test_links_of_this_machine_lead_nowhere(box: aio.Session, tmp_path: Path) -> None:
    """What was there before the copy: a folder that is a link is refused, a file that is a link is replaced."""
    await box.write("out/folder/file", "new")
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    (outside / "file").write_text("old")
    target.mkdir()
    (target / "folder").symlink_to(outside)
    with pytest.raises(errors.PathNotAllowed, match="link"):
        await box.download("out", target)
    (target / "folder").unlink()
    (target / "folder").mkdir()
    (target / "folder/file").symlink_to(outside / "file")
    await box.download("out", target)
    assert ((target / "folder/file").read_text(), (target / "folder/file").is_symlink()) == ("new", False)
    assert ((outside / "file").read_text(), host.names(outside)) == ("old", ["file"])


async def test_a_copy_that_is_cancelled_leaves_whole_files_only(box: aio.Session, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(40):
        (source / str(number)).write_bytes(b"x" * 300_000)
    for way in ("up", "down"):
        for delay in (0.0, 0.002, 0.01, 0.03):
            target = tmp_path / f"{way}{delay}"
            with anyio.move_on_after(delay):
                await (box.upload(source, "in") if way == "up" else box.download("in", target))
            if target.exists():
                assert {path.stat().st_size for path in target.iterdir()} <= {300_000}
                assert not list(target.glob(".*"))
        await box.upload(source, "in")
    assert {entry.size_bytes for entry in await box.list("in")} == {300_000}


async def test_errors_are_of_the_side_that_failed(box: aio.Session, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await box.upload(tmp_path / "nowhere", "in")
    with pytest.raises(errors.PathNotAllowed):
        await box.upload(tree, "../out")
    await box.write("file", "x")
    with pytest.raises((errors.SandboxFileExists, errors.SandboxNotADirectory)):
        await box.upload(tree, "file")
    await box.upload(tree, "in")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        await box.download("in", tmp_path / "file")
    with pytest.raises(errors.SandboxFileNotFound):
        await box.download("missing", tmp_path / "x")
    assert not (tmp_path / "x").exists()

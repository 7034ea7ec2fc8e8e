"""A full workspace is the sandbox's own problem, and one that it can get out of (T34–T36)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from holdfast import EndCause, errors
from tests.faults.host import Box, box, every, look_at, small

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]

MB = 1 << 20


def free_on_host() -> int:
    return min(shutil.disk_usage(place).free for place in ("/", "/tmp", tempfile.gettempdir()))


async def fill(sandbox: Box) -> None:
    result = await sandbox.exec("cat /dev/zero > filling", timeout=60)
    assert not result.ok and "No space" in result.stderr


@every()
async def test_t34_a_program_fills_the_workspace() -> None:
    async with box(limits=small(workspace_mb=16)) as sandbox:
        before = free_on_host()
        result = await sandbox.exec("head -c 26000000 /dev/zero > f", timeout=60)
        assert (result.end_cause, result.exit_code) == (EndCause.DISK_FULL, 1)
        assert (await sandbox.session.stat("f")).size_bytes <= 16 * MB
        # other folders that can be written share the limit, or have their own; the root of `standard` has none
        others = ("/tmp/g", f"{sandbox.home}/g", "/dev/shm/g") if sandbox.uid else ("/dev/shm/g",)
        for place in others:
            assert not (await sandbox.exec(f"head -c 100000000 /dev/zero > {place}")).ok
            await sandbox.exec(["rm", "-f", place])
        # Other tests write too, and remove it again; the file is still there, and is not on the host's disk.
        await sandbox.until(lambda: before - free_on_host() < 8 * MB, "the host's disk is as it was", 60)
        await sandbox.session.delete("f")
        within = await sandbox.exec("head -c 10000000 /dev/zero > f")
        assert (within.ok, within.end_cause) == (True, EndCause.COMPLETED)


async def test_t34_writes_and_uploads_fill_the_workspace(tmp_path: Path) -> None:
    async with box(limits=small(workspace_mb=16)) as sandbox:
        with pytest.raises(errors.WorkspaceFull), anyio.fail_after(30):
            await sandbox.session.write("f", b"x" * (26 * MB))
        large = tmp_path / "large"
        with large.open("wb") as file:
            file.truncate(26 * MB)
        with pytest.raises(errors.WorkspaceFull), anyio.fail_after(30):
            await sandbox.session.upload(large, "f")
        assert len(await sandbox.session.list()) == 0  # nothing, and no part of it
        await sandbox.session.write("f", b"x" * (10 * MB))
        with pytest.raises(errors.WorkspaceFull):
            await sandbox.session.write("f", b"y" * (15 * MB))
        assert await sandbox.session.read("f", max_bytes=3) == b"xxx"  # the old one is whole

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"z" * MB

        with pytest.raises(errors.WorkspaceFull), anyio.fail_after(30):
            await (await sandbox.session.guest()).write_file("g", endless())
        await sandbox.works()


async def test_t35_more_files_than_there_may_be() -> None:
    async with box(limits=small(max_files=2000)) as sandbox:
        make = "import os\nfor n in range(1_000_000): os.close(os.open(f'f{n}', os.O_CREAT))"
        result = await sandbox.exec(["python3", "-c", make], timeout=60)
        assert (result.end_cause, result.exit_code) == (EndCause.DISK_FULL, 1)
        assert "No space" in result.stderr
        count = len(await sandbox.session.list(max_entries=10_000))
        assert 1900 < count <= 2008
        with pytest.raises((errors.TooManyFiles, errors.WorkspaceFull)):
            await sandbox.session.write("one-more", "x")
        with pytest.raises((errors.TooManyFiles, errors.WorkspaceFull)):
            await sandbox.session.mkdir("one/more")
        await sandbox.exec("rm f1?? f2??")
        await sandbox.session.write("one-more", "x")
        assert (await sandbox.exec("touch another")).ok


async def test_t35_a_million_files_do_not_eat_the_guest_s_memory() -> None:
    """An empty file has no bytes and still takes memory of the kernel, which counts for the sandbox."""
    async with box(limits=small(memory_mb=32, workspace_mb=8, max_files=100_000)) as sandbox:
        make = "import os\nfor n in range(1_000_000): os.close(os.open(f'f{n}', os.O_CREAT))"
        result = await sandbox.exec(["python3", "-c", make], timeout=80)
        assert not result.ok and result.end_cause in (EndCause.DISK_FULL, EndCause.OOM)
        assert look_at(sandbox.pid) is not None
        await sandbox.works()


async def test_t36_a_full_workspace_can_be_emptied() -> None:
    async with box(limits=small(workspace_mb=16)) as sandbox:
        await sandbox.session.write("other", "content")
        for _ in range(3):
            await fill(sandbox)
            assert (await sandbox.exec("echo hello; ls")).stdout == "hello\nfilling\nother\n"
            assert await sandbox.session.read_text("other") == "content"
            assert {entry.path for entry in await sandbox.session.list()} == {"filling", "other"}
            assert (await sandbox.session.status()).workspace_free_bytes < 64 << 10
            await sandbox.session.delete("filling")
        await sandbox.session.write("again", b"x" * (10 * MB))


async def test_t36_a_failure_on_a_full_disk_is_told_from_others() -> None:
    async with box(limits=small(workspace_mb=16)) as sandbox:
        assert (await sandbox.exec("exit 1")).end_cause is EndCause.COMPLETED
        await fill(sandbox)
        assert (await sandbox.exec("exit 1")).end_cause is EndCause.DISK_FULL
        assert (await sandbox.exec("exit 0")).end_cause is EndCause.COMPLETED


async def test_a_full_workspace_and_no_memory_left() -> None:
    """The workspace lies in memory: its limit comes on top of the programs', so a full one kills nobody."""
    async with box(limits=small(memory_mb=64, workspace_mb=64)) as sandbox:
        await fill(sandbox)
        eat = ["python3", "-c", "data = bytearray(40 << 20); print('held')"]
        assert (await sandbox.exec(eat, timeout=60)).stdout == "held\n"
        too_much = await sandbox.exec(["python3", "-c", "data = bytearray(400 << 20)"], timeout=60)
        assert too_much.end_cause is EndCause.OOM
        await sandbox.session.delete("filling")
        await sandbox.works()


async def test_two_sessions_have_two_disks() -> None:
    async with box(limits=small(workspace_mb=16)) as one, box(limits=small(workspace_mb=16)) as other:
        await fill(one)
        await other.session.write("f", b"x" * (10 * MB))
        for name in ("tmp", one.home[1:], "dev/shm"):
            await other.exec(f"echo mine > /{name}/mark")
            assert not one.path(f"{name}/mark").exists()
            assert other.path(f"{name}/mark").exists()

"""Files beneath the workspace and nowhere else, whatever the names, links and kinds (T18–T33)."""

from __future__ import annotations

import os
import stat

import anyio
import pytest

from holdfast import errors
from tests.faults.host import Box, box, every, resident_kb

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(90)]

OUTSIDE = (
    "../x",
    "/etc/x",
    "a/../../x",
    "/workspace/../etc/x",
    "/workspace2/x",
    "/tmp/x",
    "..",
    "/",
    "//etc/x",
    "/./etc/x",
)


async def refused(sandbox: Box, path: str) -> set[type[Exception]]:
    """What each file call says to a path."""
    session = sandbox.session
    calls = (
        lambda: session.write(path, "x"),
        lambda: session.read(path),
        lambda: session.list(path),
        lambda: session.stat(path),
        lambda: session.delete(path, recursive=True),
        lambda: session.mkdir(path),
        lambda: session.move("inside", path),
        lambda: session.move(path, "moved"),
    )
    kinds: set[type[Exception]] = set()
    for call in calls:
        with pytest.raises(errors.SandboxError) as error, anyio.fail_after(20):
            await call()
        kinds.add(type(error.value))
    return kinds


async def test_t18_paths_that_leave() -> None:
    async with box() as sandbox:
        await sandbox.session.write("inside", "kept")
        for path in OUTSIDE:
            assert await refused(sandbox, path) == {errors.PathNotAllowed}, path
        for path, kind in (
            ("a\0b", errors.InvalidRequest),
            ("", errors.InvalidRequest),
            ("x" * 5000, errors.NameTooLong),
        ):
            with pytest.raises(kind):
                await sandbox.session.write(path, "x")
        with pytest.raises(errors.NameTooLong):
            await sandbox.session.write("n" * 256, "x")
        with pytest.raises(errors.SandboxIsADirectory):
            await sandbox.session.write(".", "x")
        # twins: names that only look dangerous
        for path in ("%2e%2e/x", "...", "..a", "a..", "/workspace/b", "c/./d", "e/../f", "/".join(["d"] * 300)):
            await sandbox.session.write(path, path)
            assert await sandbox.session.read_text(path) == path
        assert await sandbox.session.read_text("inside") == "kept"
        assert not sandbox.path("etc/x").exists() and not sandbox.path("tmp/x").exists()


async def test_t19_folders_that_are_links() -> None:
    async with box() as sandbox:
        await sandbox.session.write("real/file", "here")
        await sandbox.session.write("inside", "kept")
        await sandbox.exec(
            "ln -s / root; ln -s /etc etc; ln -s .. up; ln -s real good; ln -s /workspace/real absolute;"
            "mkdir /tmp/out; echo secret > /tmp/out/file; ln -s /tmp/out tmp; ln -s real/../.. sneaky"
        )
        for link in ("root/tmp/out", "up/tmp/out", "tmp", "sneaky/tmp/out", "etc"):
            assert await refused(sandbox, f"{link}/file") <= {errors.PathNotAllowed}, link
        assert sandbox.path("tmp/out/file").read_text() == "secret\n"
        assert os.listdir(sandbox.path("tmp/out")) == ["file"]  # noqa: PTH208 - names are all that is wanted
        assert await sandbox.session.read_text("good/file") == "here"
        await sandbox.session.write("good/new", "x")
        assert await sandbox.session.read_text("real/new") == "x"
        listed = await sandbox.session.list(recursive=True)
        assert not [entry for entry in listed if entry.path.startswith(("root/", "etc/", "tmp/"))]


async def test_t20_names_that_are_links() -> None:
    async with box() as sandbox:
        await sandbox.session.write("real", "here")
        await sandbox.exec("ln -s /etc/passwd out; ln -s real in; ln -s nothing dangling; ln -s b a; ln -s a b")
        for link, kind in (
            ("out", errors.PathNotAllowed),
            ("dangling", errors.SandboxFileNotFound),
            ("a", errors.SymlinkLoop),
        ):
            with pytest.raises(errors.SandboxError) as error:
                await sandbox.session.read(link)
            assert type(error.value) is kind
        assert await sandbox.session.read_text("in") == "here"
        await sandbox.session.delete("out")
        assert sandbox.path("etc/passwd").exists()


async def test_t19_a_race_between_look_and_act_is_never_won() -> None:
    swap = """
import os
os.makedirs("d"); os.symlink("/tmp", "link"); open("/tmp/target", "w").write("secret")
print("up", flush=True)
while True:
    os.rename("d", "real"); os.rename("link", "d"); os.rename("d", "link"); os.rename("real", "d")
"""
    async with box() as sandbox:
        racer = await sandbox.session.start(["python3", "-c", swap], timeout=60)
        await sandbox.said(racer, b"up")
        for _ in range(200):
            for call in (sandbox.session.read("d/target"), sandbox.session.write("d/planted", "x")):
                try:
                    got = await call
                except errors.FileError:
                    continue
                assert got != b"secret"
        await racer.kill()
        assert not sandbox.path("tmp/planted").exists()
        assert sandbox.path("tmp/target").read_text() == "secret"


async def test_t21_what_is_no_regular_file() -> None:
    async with box() as sandbox:
        make = (
            "import os, socket; os.mkfifo('fifo'); socket.socket(1, 1).bind('socket'); os.symlink('/dev/zero', 'zero')"
        )
        assert (await sandbox.exec(["python3", "-c", make])).ok
        for name in ("fifo", "socket"):
            with pytest.raises(errors.NotRegularFile), anyio.fail_after(10):
                await sandbox.session.read(name)
            with pytest.raises(errors.SandboxError), anyio.fail_after(10):
                await sandbox.session.write(name, "x", overwrite=False)
        with pytest.raises(errors.PathNotAllowed):
            await sandbox.session.read("zero")
        kinds = {entry.path: entry.kind.value for entry in await sandbox.session.list()}
        assert kinds == {"fifo": "other", "socket": "other", "zero": "symlink"}


async def test_t22_t33_the_kernel_s_own_trees() -> None:
    async with box() as sandbox:
        await sandbox.exec("ln -s /proc p; ln -s /sys s; ln -s /proc/self/environ e; ln -s /dev v")
        await sandbox.session.write("inside", "x")
        paths = ["/proc/self/environ", "/proc/1/mem", "/sys/kernel", "/dev/null", "//proc/1/mem", "/./proc/1/mem"]
        for path in (*paths, "p/1/mem", "s/kernel", "v/null"):
            assert await refused(sandbox, path) == {errors.PathNotAllowed}, path
        with pytest.raises(errors.PathNotAllowed):
            await sandbox.session.read("e")


async def test_t23_a_huge_sparse_file() -> None:
    async with box() as sandbox:
        assert (await sandbox.exec("truncate -s 200M sparse; truncate -s 300M over || echo refused")).stdout
        before = resident_kb()
        data = await sandbox.session.read("sparse", max_bytes=256 << 10)
        assert (len(data), (await sandbox.session.stat("sparse")).size_bytes) == (256 << 10, 200 << 20)
        assert resident_kb() - before < 20_000
        assert await sandbox.session.read("sparse", offset=(200 << 20) - 3) == b"\0\0\0"


async def test_t24_a_file_that_grows_while_it_is_read() -> None:
    async with box() as sandbox:
        grower = await sandbox.session.start("echo up; while :; do head -c 1000000 /dev/zero; done >> big", timeout=60)
        await sandbox.said(grower, b"")
        await sandbox.until(lambda: sandbox.path("workspace/big").exists(), "it grows")
        with anyio.fail_after(30):
            assert len(await sandbox.session.read("big", max_bytes=1 << 20)) <= 1 << 20
            await sandbox.session.read("big")  # as large as it was when it was opened
        await grower.kill()


async def test_t25_any_name_makes_the_round_trip() -> None:
    names = [
        "new\nline",
        "tab\t",
        "quote'\"`$(x)",
        "-rf",
        "*",
        " lead",
        "\udcff\udcfe",
        "ü" * 127,
        "\\x00",
        "\x1b[31m",
        "\x7f",
    ]
    async with box() as sandbox:
        for name in names:
            await sandbox.session.write(f"dir/{name}", name.encode("utf-8", "surrogateescape"))
        listed = await sandbox.session.list("dir")
        assert {entry.path for entry in listed} == {f"dir/{name}" for name in names}
        on_host = {entry.name for entry in sandbox.path("workspace/dir").iterdir()}
        assert on_host == set(names)
        for name in names:
            assert await sandbox.session.read(f"dir/{name}") == name.encode("utf-8", "surrogateescape")
            assert (await sandbox.session.stat(f"dir/{name}")).as_tool()
            await sandbox.session.delete(f"dir/{name}")
        assert len(await sandbox.session.list("dir")) == 0


async def test_t26_a_hundred_thousand_files() -> None:
    async with box() as sandbox:
        make = "import os\nos.mkdir('m'); os.symlink('..', 'm/up')\n"
        make += "for n in range(99_000): os.close(os.open(f'm/{n}', os.O_CREAT))"
        assert (await sandbox.exec(["python3", "-c", make], timeout=80)).ok
        before = resident_kb()
        capped = await sandbox.session.list("m", max_entries=1000)
        assert (len(capped), capped.truncated) == (1000, True)
        assert resident_kb() - before < 20_000
        everything = await sandbox.session.list(recursive=True, max_entries=200_000)
        assert (len(everything), everything.truncated) == (99_002, False)


async def test_t28_a_write_that_is_cut_leaves_the_old_file() -> None:
    async with box() as sandbox:
        await sandbox.session.write("file", "old")
        for round_ in range(50):
            with anyio.move_on_after(0.0005 * (round_ % 10)):
                await sandbox.session.write("file", b"n" * 3_000_000)
            content = await sandbox.session.read("file")
            assert content in (b"old", b"n" * 3_000_000)
            await sandbox.session.write("file", "old")
        names = {entry.name for entry in sandbox.path("workspace").iterdir()}
        assert names == {"file"}


async def test_t29_files_and_folders_do_not_replace_each_other() -> None:
    async with box() as sandbox:
        await sandbox.session.write("d/keep", "x")
        await sandbox.session.write("f", "y")
        with pytest.raises(errors.SandboxIsADirectory):
            await sandbox.session.write("d", "z")
        for path in ("f", "f/below"):
            with pytest.raises((errors.SandboxFileExists, errors.SandboxNotADirectory)):
                await sandbox.session.mkdir(path)
        with pytest.raises(errors.SandboxFileExists):
            await sandbox.session.write("f", "z", overwrite=False)
        assert await sandbox.session.read_text("d/keep") == "x" and await sandbox.session.read_text("f") == "y"


@every()
async def test_t30_modes_and_owners() -> None:
    async with box() as sandbox:
        await sandbox.session.write("s", "#!/bin/sh\nid -u\n", mode=0o4755)
        told = sandbox.path("workspace/s").stat()
        assert stat.S_IMODE(told.st_mode) == 0o755
        assert told.st_uid == sandbox.path("workspace").stat().st_uid
        assert (told.st_uid == 0) == (sandbox.uid == 0)
        for mode in (-1, 0o10000, 1 << 40):
            with pytest.raises(errors.InvalidRequest):
                await sandbox.session.write("t", "x", mode=mode)
        await sandbox.session.write("t", "x", mode=0o600)
        assert (await sandbox.session.stat("t")).mode == 0o600


async def test_t31_what_is_deleted() -> None:
    async with box() as sandbox:
        await sandbox.session.write("d/x", "x")
        await sandbox.exec("ln -s d link")
        for path in (".", "/workspace", "d/.."):
            with pytest.raises(errors.SandboxError):
                await sandbox.session.delete(path, recursive=True)
        with pytest.raises(errors.DirectoryNotEmpty):
            await sandbox.session.delete("d")
        await sandbox.session.delete("link", recursive=True)
        assert await sandbox.session.read_text("d/x") == "x"
        await sandbox.session.delete("d", recursive=True)
        assert not sandbox.path("workspace/d").exists()
        with pytest.raises(errors.SandboxFileNotFound):
            await sandbox.session.delete("d")

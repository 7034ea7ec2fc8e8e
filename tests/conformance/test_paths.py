"""Paths: what does not lie beneath the workspace is refused, and every refusal has its own name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast import aio, errors
from holdfast.abc import Capability, Engine, EngineStatus
from holdfast.results import FileKind

from .conftest import ProbeArgv

pytestmark = pytest.mark.anyio

Verb = Callable[[aio.Session, str], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "write": lambda box, path: box.write(path, "x"),
    "read": lambda box, path: box.read(path),
    "list": lambda box, path: box.list(path),
    "stat": lambda box, path: box.stat(path),
    "delete": lambda box, path: box.delete(path, recursive=True),
    "mkdir": lambda box, path: box.mkdir(path),
    "move from": lambda box, path: box.move(path, "moved"),
    "move to": lambda box, path: box.move("here", path),
}
each_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


@each_verb
async def test_a_path_that_leaves_is_refused(box: aio.Session, verb: Verb) -> None:
    await box.write("here", "x")
    for path in ("../x", "a/../../x", "/etc/passwd", "/workspace2/x", "/", "//etc", "/proc/self/environ", ".."):
        with pytest.raises(errors.PathNotAllowed):
            await verb(box, path)


BLOCKED = ("/etc/passwd", "/etc/shadow", "/root", "/root/.ssh/id_rsa", "/proc/1/mem", "/proc/self/environ", "/sys",
           "/dev/zero", "/.holdfast/guest", "/.holdfast-run/sock", "/var/run/docker.sock")  # fmt: skip
"""what an agent's file tools may not touch, whether it is there or not"""


@each_verb
async def test_blocked_paths_are_blocked_however_they_are_spelled(
    box: aio.Session, probe: ProbeArgv, verb: Verb
) -> None:
    """T22 and T33: by path, by link, and by link to a folder above."""
    await box.write("here", "x")
    for path in BLOCKED:
        for spelling in (path, f"/{path}", f"/.{path}", f"{box.effective.workspace}/../{path}", f"here/../../{path}"):
            with pytest.raises(errors.PathNotAllowed):
                await verb(box, spelling)
    assert (await box.exec(probe("link", "/", "top"))).ok
    for path in BLOCKED:
        with pytest.raises(errors.PathNotAllowed):
            await verb(box, f"top{path}")
    fine = {VERBS[name]: "fine" for name in ("write", "mkdir", "move to")} | {VERBS["list"]: "."}
    await verb(box, fine.get(verb, "here"))


@each_verb
async def test_a_link_that_leaves_is_refused(box: aio.Session, probe: ProbeArgv, verb: Verb) -> None:
    await box.write("here", "x")
    for target in ("/", "/etc", ".."):
        assert (await box.exec(probe("link", target, "away"))).ok
        with pytest.raises(errors.PathNotAllowed):
            await verb(box, "away/x")
        await box.delete("away")


@each_verb
async def test_a_link_that_stays_is_followed(box: aio.Session, probe: ProbeArgv, verb: Verb) -> None:
    await box.write("here", "x")
    await box.mkdir("real/deep")
    if verb not in (VERBS["write"], VERBS["mkdir"], VERBS["move to"]):
        await box.mkdir("real/deep/x") if verb is VERBS["list"] else await box.write("real/deep/x", "x")
    assert (await box.exec(probe("link", "real/deep", "near"))).ok
    await verb(box, "near/x")


async def test_a_link_at_the_end_is_followed_inside_and_refused_outside(box: aio.Session, probe: ProbeArgv) -> None:
    await box.write("file", "content")
    for target, name in (("file", "good"), ("/etc/passwd", "bad"), ("nowhere", "dangling"), ("loop", "loop")):
        assert (await box.exec(probe("link", target, name))).ok
    assert await box.read("good") == b"content"
    assert (await box.stat("good")).kind is FileKind.FILE
    with pytest.raises(errors.PathNotAllowed):
        await box.read("bad")
    with pytest.raises(errors.SandboxFileNotFound):
        await box.read("dangling")
    with pytest.raises(errors.SymlinkLoop):
        await box.read("loop")
    kinds = {entry.path: entry.kind for entry in (await box.list()).entries}
    assert kinds == {"file": FileKind.FILE} | dict.fromkeys(("good", "bad", "dangling", "loop"), FileKind.SYMLINK)


async def test_writing_through_a_link_changes_what_it_leads_to(box: aio.Session, probe: ProbeArgv) -> None:
    await box.write("file", "old")
    assert (await box.exec(probe("link", "file", "name"))).ok
    await box.write("name", "new")
    assert await box.read("file") == b"new"
    assert {entry.path: entry.kind for entry in (await box.list()).entries}["name"] is FileKind.SYMLINK


async def test_deleting_a_link_leaves_what_it_leads_to(box: aio.Session, probe: ProbeArgv) -> None:
    await box.write("folder/file", "x")
    assert (await box.exec(probe("link", "folder", "name"))).ok
    await box.delete("name", recursive=True)
    assert await box.read("folder/file") == b"x"


async def test_the_workspace_itself_stays(box: aio.Session) -> None:
    await box.write("file", "x")
    for path in (".", box.effective.workspace, f"{box.effective.workspace}/", "a/.."):
        with pytest.raises(errors.PathNotAllowed):
            await box.delete(path, recursive=True)
        with pytest.raises(errors.PathNotAllowed):
            await box.move("file", path, overwrite=True)
    assert await box.read("file") == b"x"
    await box.delete("file")


async def test_what_is_not_there_is_named(box: aio.Session) -> None:
    for verb in ("read", "list", "stat", "delete", "move from"):
        with pytest.raises(FileNotFoundError, match="missing") as caught:
            await VERBS[verb](box, "missing")
        assert isinstance(caught.value, errors.SandboxFileNotFound)


async def test_a_folder_is_not_a_file(box: aio.Session) -> None:
    await box.write("folder/file", "x")
    for verb in ("read", "write"):
        with pytest.raises(errors.SandboxIsADirectory):
            await VERBS[verb](box, "folder")
    for path in (".", "folder/", "new/"):
        with pytest.raises(errors.SandboxIsADirectory):
            await box.write(path, "x")
    await box.write("file", "x")
    with pytest.raises(errors.SandboxIsADirectory):
        await box.move("file", "folder", overwrite=True)
    assert await box.read("folder/file") == b"x", "the tree is intact"


@each_verb
async def test_a_file_is_not_a_folder(box: aio.Session, verb: Verb) -> None:
    await box.write("here", "x")
    await box.write("file", "x")
    with pytest.raises(errors.SandboxNotADirectory):
        await verb(box, "file/below")
    assert await box.read("file") == b"x"


async def test_a_file_is_neither_listed_nor_made_a_folder(box: aio.Session) -> None:
    await box.write("file", "x")
    with pytest.raises(errors.SandboxNotADirectory):
        await box.list("file")
    with pytest.raises(errors.SandboxFileExists):
        await box.mkdir("file")
    assert await box.read("file") == b"x"


async def test_a_folder_cannot_move_into_itself(box: aio.Session) -> None:
    await box.mkdir("a/b")
    with pytest.raises(errors.InvalidRequest):
        await box.move("a", "a/b/c")
    with pytest.raises(errors.DirectoryNotEmpty):
        await box.mkdir("c")
        await box.move("c", "a", overwrite=True)
    await box.move("a/b", "b")


@each_verb
async def test_a_name_has_a_limit(box: aio.Session, verb: Verb) -> None:
    await box.write("here", "x")
    for path in ("x" * 256, "x/" * 2500):
        with pytest.raises(errors.NameTooLong):
            await verb(box, path)


async def test_what_is_closed_is_closed_and_can_be_opened(
    box: aio.Session, probe: ProbeArgv, checked: tuple[Engine, EngineStatus]
) -> None:
    if Capability.USER_SWITCH in checked[1].capabilities:
        pytest.skip("programs are root here, and root is let in everywhere")
    await box.write("folder/file", "x", mode=0o000)
    with pytest.raises(errors.PermissionDenied):
        await box.read("folder/file")
    assert (await box.exec(probe("chmod", "folder/file", "600"))).ok
    assert await box.read("folder/file") == b"x"
    assert (await box.exec(probe("chmod", "folder", "500"))).ok
    with pytest.raises(errors.PermissionDenied):
        await box.write("folder/new", "x")
    assert (await box.exec(probe("chmod", "folder", "700"))).ok
    await box.write("folder/new", "x")

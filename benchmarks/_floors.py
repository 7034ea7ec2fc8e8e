"""The floors: what the same costs with nothing between, or by hand through the raw interface."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from _measure import NotHere

IMAGE = "python:3.11-slim"
TRUE = ["/usr/bin/true"]
# What the sandbox's programs have, so that both sides start the same thing.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
HOST_PYTHON = f"{sys.base_prefix}/bin/python3"
"""The one that the engine `local` gives to runs."""
SYSTEM_PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else HOST_PYTHON
"""Nearest to the one of an image: nobody's hooks run at its start."""
BUBBLEWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]
BUBBLEWRAP += ["--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]
BUBBLEWRAP += ["--ro-bind", sys.base_prefix, sys.base_prefix, "--"]


async def host(argv: list[str]) -> None:
    """Blocks: that is what is measured."""
    if shutil.which(argv[0]) is None:
        raise NotHere(f"{argv[0]} is not installed")
    subprocess.run(argv, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)


async def in_thread(argv: list[str]) -> None:
    await anyio.to_thread.run_sync(partial(subprocess.run, argv, env=ENVIRONMENT, check=True))


class RawContainer:
    """A plain container, driven by the daemon's own API: two requests for each exec."""

    def __init__(self, image: str = IMAGE, **options: Any) -> None:
        import docker

        self.client: Any = docker.from_env()
        self.api = self.client.api
        words = {"network_mode": "none", **options}
        self.container: Any = self.client.containers.create(image, ["sleep", "3600"], **words)
        self.container.start()

    def exec(self, argv: list[str]) -> bytes:
        made = self.api.exec_create(self.container.id, argv)
        output: bytes = self.api.exec_start(made["Id"])
        return output

    def put(self, name: str, tar: bytes) -> None:
        assert self.api.put_archive(self.container.id, "/root", tar), name

    def get(self, name: str) -> int:
        stream, _ = self.api.get_archive(self.container.id, f"/root/{name}")
        return sum(len(piece) for piece in stream)

    def remove(self) -> None:
        self.container.remove(force=True, v=True)
        self.client.close()


@contextmanager
def raw_container() -> Iterator[RawContainer]:
    made = RawContainer()
    try:
        yield made
    finally:
        made.remove()


@contextmanager
def runc_bundle(argv: list[str]) -> Iterator[list[str]]:
    """A command that runs this in a container of runc alone: the image's files, no daemon."""
    if shutil.which("runc") is None:
        raise NotHere("runc is not installed")
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(raw_container())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root = f"/proc/{raw.api.inspect_container(raw.container.id)['State']['Pid']}/root"
        subprocess.run(["runc", "spec"], cwd=folder, check=True)
        spec = json.loads((folder / "config.json").read_text())
        spec["process"] |= {"terminal": False, "args": argv}
        merged = raw.api.inspect_container(raw.container.id)["GraphDriver"]["Data"]
        spec["root"] = {"path": merged.get("MergedDir", root), "readonly": True}
        (folder / "config.json").write_text(json.dumps(spec))
        yield ["runc", "run", "--bundle", str(folder), f"bench-{os.getpid()}-{secrets.token_hex(3)}"]

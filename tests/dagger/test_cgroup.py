"""The cgroup that an operator gives an engine bounds what its runs use together, and `doctor` looks whether it does."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import aio
from holdfast.engines.dagger.engine import DaggerEngine

from .conftest import another_engine

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

ROOT = Path("/sys/fs/cgroup")
LIMIT_MB = 200
NOTE = "the cgroup of runs"
# Each child is well below the limit of a process; together they are above that of the cgroup.
CHILDREN = """
import os, time
def child():
    held = bytearray(b"x") * (90 << 20)
    time.sleep(1)
    os._exit(0)
print(sorted(os.waitpid(one, 0)[1] for one in [os.fork() or child() for _ in range(COUNT)]))
"""


@pytest.fixture
def parent() -> Iterator[str]:
    """A cgroup with a limit on memory; swap counts where the kernel counts it."""
    name = f"holdfast-test-{secrets.token_hex(4)}"
    memory, files = ROOT / name, ("memory.max", "memory.swap.max")
    if not (ROOT / "cgroup.controllers").exists():
        memory, files = ROOT / "memory" / name, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    memory.mkdir()
    for file, limit in zip(
        files, (LIMIT_MB << 20, 0 if files[1] == "memory.swap.max" else LIMIT_MB << 20), strict=True
    ):
        with contextlib.suppress(FileNotFoundError):
            (memory / file).write_text(str(limit))
    yield name
    for top in {memory, *ROOT.glob(f"*/{name}")}:  # with version 1, the engine makes the others
        for folder in (*sorted((one for one in top.rglob("*") if one.is_dir()), reverse=True), top):
            folder.rmdir()


async def test_all_runs_together_stay_in_the_operators_cgroup(
    dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch, parent: str
) -> None:
    monkeypatch.setenv("HOLDFAST_DAGGER_CGROUP_PARENT", f"/{parent}")
    with another_engine(config=f'[worker.oci]\n  defaultCgroupParent = "/{parent}"\n') as own:
        monkeypatch.setenv("DAGGER_HOST", own.host)
        few = await aio.run(CHILDREN.replace("COUNT", "1"))
        assert few.stdout == "[0]\n", few.stderr
        many = await aio.run(CHILDREN.replace("COUNT", "4"))
        assert "9" in many.stdout, many.stderr  # SIGKILL: the kernel's, for memory
        assert parent in many.limits["held_by"]["memory_mb"]
        assert (await dagger.notes())[NOTE].startswith("holds")
        monkeypatch.setenv("HOLDFAST_DAGGER_CGROUP_PARENT", "/another")
        assert "does NOT hold" in (await dagger.notes())[NOTE]
        dagger.close()

"""What is missing is named: the event loop that nats-py needs, the packages, the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from holdfast import errors
from holdfast.config import settings
from holdfast.staging.store import open_store

from .servers import Nkey

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import anyio
from holdfast import SandboxError
from holdfast.config import settings
from holdfast.staging.store import open_store

async def main():
    async with open_store(settings()):
        pass

try:
    anyio.run(main)
except SandboxError as error:
    print(error.code, error)
"""


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NATS_URL", "nats://127.0.0.1:1")


async def _open() -> None:
    async with open_store(settings()):
        pass


@pytest.mark.parametrize(("loop", "said"), [("trio", "needs asyncio"), ("asyncio", "127.0.0.1:1")])
def test_another_event_loop_is_named(configured: None, loop: str, said: str) -> None:
    with pytest.raises(errors.StagingUnavailable, match=said):
        anyio.run(_open, backend=loop)


def without(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_a_missing_package_is_named_with_its_extra(
    configured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seed").write_text(Nkey("U").seed)
    monkeypatch.setenv("HOLDFAST_NATS_NKEY", str(tmp_path / "seed"))
    for package in ("nats", "cryptography"):
        said = without(package)
        assert said.startswith("staging_unavailable") and package in said and "install holdfast[nats]" in said
    assert "127.0.0.1:1" in without("nothing")  # with the packages it gets as far as the store

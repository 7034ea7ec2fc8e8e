"""The fault catalogue on the engine `local`. T-numbers are those of the threat model; each negative has its twin."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.testbed import require


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state folder of the test's own; its path is short, for a unix socket lies in it."""
    require("bubblewrap")
    folder = tempfile.mkdtemp(dir="/tmp", prefix="hf")
    monkeypatch.setenv("HOLDFAST_STATE_DIR", folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)

"""Canaries prove that the testbed is the real thing, so that the other tests mean something."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The clients of NATS and Dagger are asyncio's."""
    return "asyncio"

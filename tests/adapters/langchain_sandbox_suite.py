"""LangChain's own suite for sandboxes, unmodified, against our deepagents backend on Docker.

Its name keeps it out of our own run: it needs plugins that are off there. `test_deepagents.py` runs it. Its files are
in /tmp, which is not our workspace.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

import holdfast
from holdfast.tools.adapters.deepagents import Backend


class TestBackend(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        with holdfast.open_session(engine="docker") as box:
            yield Backend(box)

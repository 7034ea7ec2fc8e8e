"""The mark that says what a test needs of an engine."""

from __future__ import annotations

import pytest

from holdfast.abc import Capability


def requires(*capabilities: Capability) -> pytest.MarkDecorator:
    """Skip the test on engines that do not claim all of these."""
    return pytest.mark.requires(*capabilities)

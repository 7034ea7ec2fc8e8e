"""An adapter whose framework is missing says which extra brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

MISSING = """
import sys
sys.modules[sys.argv[2]] = None
from holdfast.tools import adapters
adapters.load(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("inspect_ai", "inspect_ai", "inspect-ai"),
        ("autogen", "autogen_core", "autogen"),
        ("genkit", "genkit", "genkit"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(adapter: str, package: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING, adapter, package], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: the package {package}") and said.endswith(f"pip install 'holdfast[{extra}]'")

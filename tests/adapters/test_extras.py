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
        ("langchain", "langchain_core", "langchain"),
        ("deepagents", "deepagents", "deepagents"),
        ("openai_agents", "agents", "openai-agents"),
        ("openai_agents_sandbox", "agents", "openai-agents"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(adapter: str, package: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING, adapter, package], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: the package {package}") and said.endswith(f"pip install 'holdfast[{extra}]'")


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [("deepagents", "deepagents", "deepagents"), ("openai_agents_sandbox", "agents", "openai-agents")],
)
def test_one_that_is_imported_by_its_name_says_so_too(adapter: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; import holdfast.tools.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'holdfast[{extra}]'")

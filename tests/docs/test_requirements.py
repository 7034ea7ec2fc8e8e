"""The tables of requirements and of faults name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "requirements.md").read_text()
FAULTS = (ROOT / "docs" / "faults.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w./]+\.py)(?:::(\w+))?`", DOCUMENT + FAULTS)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_named_test_is_there(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in found if name else any(one.startswith("test_") for one in found)


def test_every_line_has_one() -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| ") and not line.startswith("| asked for")]
    assert len(rows) > 20
    assert not [row for row in rows if "`tests/" not in row]


def test_every_case_of_the_catalogue_has_a_line() -> None:
    rows = [line for line in FAULTS.splitlines() if line.startswith("| T")]
    assert not [row for row in rows if "`tests/" not in row]
    found: set[int] = set()
    for first, last in re.findall(r"T(\d\d)(?:–T(\d\d))?", "".join(row.split("|")[1] for row in rows)):
        found |= set(range(int(first), int(last or first) + 1))
    assert found == set(range(1, 66))

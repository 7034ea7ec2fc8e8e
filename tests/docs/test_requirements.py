"""The tables of requirements name what exists: in the code, and in the tests that hold it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from holdfast import aio, config
from holdfast.config import SandboxConfig, SandboxLimits, SandboxNetwork
from holdfast.tools.tool import Tool

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "requirements.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w./]+\.py)(?:::(\w+))?`", DOCUMENT)))
STAGING = {"sandbox_stage_file", "sandbox_publish_file"}


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table."""
    section = DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def code(cell: str) -> str:
    """The first name in a cell."""
    return cell.split("`")[1]


@cache
def functions(path: str) -> dict[str, str]:
    """Each function of a file, as it is written, decorators included."""
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    return {
        node.name: "\n".join(
            lines[min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1 : node.end_lineno]
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_named_test_is_there(path: str, name: str) -> None:
    found = functions(path)
    assert name in found if name else any(one.startswith("test_") for one in found)


def test_every_line_has_one() -> None:
    titles = re.findall(r"^## (.+)$", DOCUMENT, re.MULTILINE)
    found = [row for title in titles for row in rows(title)]
    assert len(found) > 150
    assert not [row for row in found if "`tests/" not in row[-1]]


def holds(row: list[str], name: str) -> bool:
    """Whether one of the files that a row names names the thing itself."""
    paths = re.findall(r"`(tests/[\w./]+\.py)", row[-1])
    return any(name in (ROOT / path).read_text() for path in paths)


# --- what others type: all of it is in a table, and all that is in a table is there


def keys() -> set[str]:
    groups: dict[str, type[BaseModel]] = {"limits": SandboxLimits, "network": SandboxNetwork}
    own = {f"sandbox.{name}" for name in SandboxConfig.model_fields if name not in groups}
    return {"sandbox"} | own | {f"sandbox.{group}.{name}" for group in groups for name in groups[group].model_fields}


def test_each_key_of_the_frontmatter() -> None:
    named = [code(row[0]) for row in rows("Frontmatter, form by form")]
    ours = {"sandbox.secrets", "sandbox.cache"}
    assert sorted(named) == sorted(keys() - ours)
    for row in rows("Frontmatter, form by form"):
        assert holds(row, code(row[0]).rpartition(".")[2]), row


def test_each_variable() -> None:
    known = {name: setting for setting, env in config.variables().items() for name in env.names}
    found = {code(row[0]): code(row[1]) for row in rows("Variables")}
    assert found == {name: known[name] for name in found}
    assert {name for name in known if name.startswith("STATION_")} - set(found) == {
        "STATION_SANDBOX_MAX_ARTIFACTS_COUNT"
    }
    for row in rows("Variables"):
        assert holds(row, f'"{code(row[0])}"'), row


async def tools() -> dict[str, Tool]:
    both = [await aio.toolset(one, engine="fake") for one in (SandboxConfig(), SandboxConfig(mode="code"))]
    return {tool.name: tool for toolset in both for tool in toolset}


@pytest.mark.anyio
async def test_each_field_of_the_tools() -> None:
    found = await tools()
    for tool, theirs, ours, _, _ in rows("Tool inputs"):
        one = found[code(tool)]
        assert code(ours) in one.input_schema["properties"], (tool, ours)
        assert theirs == ours or one.input.other_names.get(code(theirs), code(theirs)) == code(ours)
    for tool, _, ours, _, _ in rows("Tool outputs"):
        assert code(ours) in found[code(tool)].output_schema["properties"], (tool, ours)
    for title in ("Tool inputs", "Tool outputs"):
        assert {code(row[0]) for row in rows(title)} == set(found) - STAGING
        for row in rows(title):
            assert holds(row, f'"{code(row[1])}"'), row
    extra = {"stdin", "artifacts"}
    for name, one in found.items():
        told = {code(row[2]) for row in rows("Tool inputs") if code(row[0]) == name}
        assert set(one.input_schema["properties"]) - told <= extra, name


def test_each_error_code_and_the_marker() -> None:
    for row in rows("Error codes and what a model is shown"):
        assert holds(row, code(row[0]).partition(" N ")[0]), row

"""Writes what the models know into the documents: the table of settings and the JSON Schema of the frontmatter.

`--check` only compares, and fails on drift.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holdfast import runtimes
from holdfast.config import OTHER_VARIABLES, SandboxConfig, SandboxLimits, SandboxNetwork, Settings, variables

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "src/holdfast/schema/frontmatter.json"
TABLES = ROOT / "docs/configuration.md"


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """field -> the docstring under it"""
    (body,) = (node.body for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def schema() -> str:
    made = SandboxConfig.model_json_schema()
    groups = made.pop("$defs")
    for model in (SandboxLimits, SandboxNetwork):
        groups[model.__name__] = _described(groups[model.__name__], model)
    groups["SandboxConfig"] = _described(made, SandboxConfig)
    names = sorted({*runtimes.RUNTIMES, *runtimes.ALIASES})
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Frontmatter of an agent's prompt file",
        "description": "Only the key `sandbox` is Holdfast's; all others may be anything.",
        "type": "object",
        "properties": {
            "sandbox": {
                "description": "What the agent runs code in: a runtime, or keys. Without it the agent gets no tools.",
                "anyOf": [{"type": "string", "enum": names}, {"$ref": "#/$defs/SandboxConfig"}],
            }
        },
        "$defs": groups,
    }
    return json.dumps(whole, indent=2) + "\n"


def _described(group: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    told = descriptions(model)
    for name, field in group["properties"].items():
        described: dict[str, Any] = {"description": told[name]} if name in told else {}
        options = [option for option in field.get("anyOf", [field]) if option != {"type": "null"}]
        kept = {key: value for key, value in options[0].items() if key != "title"}
        if field.get("default") is not None:
            kept["default"] = field["default"]
        group["properties"][name] = described | kept
    return group


def settings_table() -> str:
    told = descriptions(Settings)
    lines = ["| setting | variable | default | what it is |", "|---|---|---|---|"]
    for name, env in variables().items():
        also = "".join(f"<br>or `{other}`" for other in env.also)
        default = _shown(Settings.model_fields[name].default)
        lines.append(f"| `{name}` | `{env.name}`{also} | {default} | {told[name]} |")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "<br>".join(f"`{one}`" for one in value) or "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def other_table() -> str:
    lines = ["| variable | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in OTHER_VARIABLES.items()]
    return "\n".join(lines)


def frontmatter_table() -> str:
    lines = ["| key | what it asks for |", "|---|---|"]
    for prefix, model in (("", SandboxConfig), ("limits.", SandboxLimits), ("network.", SandboxNetwork)):
        lines += [f"| `{prefix}{name}` | {text} |" for name, text in descriptions(model).items()]
    return "\n".join(lines)


def document(text: str) -> str:
    """The document with its tables made anew; each stands between two comments that name it."""
    tables = {"settings": settings_table(), "others": other_table(), "frontmatter": frontmatter_table()}
    for name, table in tables.items():
        place = re.search(rf"(?<=<!-- {name}: made by docs/generate.py -->\n).*?(?=<!-- end -->)", text, re.DOTALL)
        if place is None:
            sys.exit(f"{TABLES} has no place for the table {name}")
        text = f"{text[: place.start()]}{table}\n{text[place.end() :]}"
    return text


def main() -> None:
    wanted = {SCHEMA: schema(), TABLES: document(TABLES.read_text("utf-8"))}
    drift = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv and drift:
        sys.exit(f"{', '.join(str(path.relative_to(ROOT)) for path in drift)}: not as generated; call make generate")
    for path in drift:
        path.write_text(wanted[path], "utf-8")


if __name__ == "__main__":
    main()

"""Writes the guest's Go types from holdfast.guest.protocol. `--check` only compares, and fails on drift."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import sys
import types
import typing
from pathlib import Path

from pydantic.fields import FieldInfo

from holdfast.guest import protocol

TARGET = Path(__file__).parent / "internal" / "wire" / "messages_gen.go"
CONSTANTS = (
    "PROTOCOL",
    "MAX_MESSAGE_BYTES",
    "MAX_DATA_BYTES",
    "WINDOW_BYTES",
    "FRAME_COST",
    "PAGE_ENTRIES",
    "MAX_STREAMS",
    "MAX_SKIPPED",
    "INLINE_BYTES",
)
_SCALARS = {int: "int64", float: "float64", str: "string", bool: "bool"}
_INITIALISMS = {"id": "ID", "cpu": "CPU", "ms": "MS", "fd": "FD"}


def camel(name: str) -> str:
    return "".join(_INITIALISMS.get(part, part.capitalize()) for part in name.lower().split("_"))


def go_type(annotation: object) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin in (types.UnionType, typing.Union):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        inner_type = go_type(inner)
        return inner_type if inner_type.startswith(("[]", "map")) else f"*{inner_type}"
    if origin is list:
        return f"[]{go_type(arguments[0])}"
    if origin is dict:
        return f"map[{go_type(arguments[0])}]{go_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, protocol.Frame | enum.Enum):
        return annotation.__name__
    raise TypeError(f"no Go type for {annotation}")


def comment(text: str | None, indent: str = "") -> list[str]:
    return [f"{indent}// {line}".rstrip() for line in inspect.cleandoc(text).splitlines()] if text else []


@functools.cache
def docstrings() -> dict[str, dict[str, str]]:
    """class -> field -> the string that stands under it. Read from the source: at run time nobody needs them."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(protocol)).body:
        if isinstance(node, ast.ClassDef):
            for field, after in itertools.pairwise(node.body):
                match field, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found.setdefault(node.name, {})[name] = text
    return found


def go_struct(model: type[protocol.Frame]) -> list[str]:
    lines = ["", *comment(f"{model.__name__}: {model.__doc__}" if model.__doc__ else None)]
    lines.append(f"type {model.__name__} struct {{")
    tags: list[tuple[str, str]] = []
    documented = docstrings().get(model.__name__, {})
    for name, field in model.model_fields.items():
        if typing.get_origin(field.annotation) is typing.Literal:
            tags.append((name, typing.get_args(field.annotation)[0]))
        lines += go_field(name, field, documented.get(name))
    lines.append("}")
    for name, value in tags:
        lines += ["", f'const {camel(name)}{model.__name__} = "{value}"']
    return lines


def go_field(name: str, field: FieldInfo, documented: str | None) -> list[str]:
    literal = typing.get_origin(field.annotation) is typing.Literal
    annotation = "string" if literal else go_type(field.annotation)
    optional = field.default is None
    tag = f'`json:"{name}{",omitempty" if optional else ""}"`'
    return [*comment(documented, "\t"), f"\t{camel(name)} {annotation} {tag}"]


def go_enum(kind: type[enum.Enum]) -> list[str]:
    number = issubclass(kind, enum.IntEnum)
    lines = ["", f"type {kind.__name__} {'uint8' if number else 'string'}", "", "const ("]
    for member in kind:
        value = str(int(member.value)) if number else f'"{member.value}"'
        lines.append(f"\t{kind.__name__}{camel(member.name)} {kind.__name__} = {value}")
    return [*lines, ")"]


def generated() -> str:
    lines = [
        "// Code generated from protocol.py by generate.py. DO NOT EDIT.",
        "",
        "package wire",
        "",
        "const (",
    ]
    lines += [f"\t{camel(name)} = {getattr(protocol, name)}" for name in CONSTANTS]
    lines.append(")")
    for member in vars(protocol).values():
        if not isinstance(member, type) or member.__module__ != protocol.__name__:
            continue
        if issubclass(member, enum.Enum):
            lines += go_enum(member)
        elif issubclass(member, protocol.Frame) and member is not protocol.Frame:
            lines += go_struct(member)
    return aligned("\n".join(lines) + "\n")


def aligned(source: str) -> str:
    """As gofmt would write it; gofmt itself may be missing where this runs."""
    out: list[str] = []
    block: list[list[str]] = []

    def flush() -> None:
        widths = [max(len(row[column]) for row in block) for column in range(len(block[0]) - 1)] if block else []
        for row in block:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            out.append("\t" + " ".join([*cells, row[-1]]))
        block.clear()

    for line in source.splitlines():
        body = line.strip()
        if line.startswith("\t") and not body.startswith("//"):
            parts = body.split(" = ")
            row = [*parts[0].split(" "), f"= {parts[1]}"] if len(parts) == 2 else body.split(" ", 2)
            if block and len(row) != len(block[0]):
                flush()
            block.append(row)
            continue
        flush()
        out.append(line)
    return "\n".join(out) + "\n"


def main() -> int:
    text = generated()
    if "--check" not in sys.argv[1:]:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(text)
        return 0
    if not TARGET.is_file() or TARGET.read_text() != text:
        sys.stderr.write(f"{TARGET.name} is not what protocol.py says: run `make generate`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

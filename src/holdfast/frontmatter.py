"""A prompt file: what its frontmatter asks for, and the body, which is left alone.

    ---
    model: openai/gpt-4o
    sandbox: python
    ---
    You are …

Of the frontmatter only `sandbox` is ours; the rest may be anything that is YAML. A mistake is told with file, line,
column and key, and all of a file's mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from . import asked, mistakes, safeyaml
from .config import SandboxConfig, SandboxLimits, SandboxNetwork
from .errors import ConfigError, Mistake, printable
from .safeyaml import Alias, Mapping, Node, Odd, Place, Scalar, Sequence

KEY = "sandbox"
MAX_BYTES = 1 << 20
_LOOKED_AT = 50
"""lines in which a misplaced key is looked for"""
_BREAK = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_HINTS = {
    "engine": "which engine is taken is the operator's choice: HOLDFAST_ENGINE",
    "profile": "isolation is the operator's choice: HOLDFAST_PROFILE",
    "packages": "say pip_packages or npm_packages",
    "files": "files go to sandbox_run or sandbox_fs_write",
    "env": "variables go to the call; for secrets there is the key secrets",
    "workdir": "the working directory is the operator's choice",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file."""

    name: str
    """as it was called when it was read"""
    sandbox: SandboxConfig | None
    """what its agent asks for; None: no sandbox, so no tools"""
    body: str
    """everything after the frontmatter, as it is"""
    notes: tuple[str, ...] = ()
    """what was written and has no effect"""
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    """where each key of `sandbox` stands, such as `sandbox.limits.memory_mb`"""


def load(path: str | Path) -> Prompt:
    """Read a prompt file (.prompt or Markdown).

    Raises:
        ConfigError: it cannot be read, or its frontmatter is wrong.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(Mistake(f"cannot be read: {error.strerror}", str(path))) from error
    return parse(content, str(path))


def parse(content: bytes | str, name: str = "prompt") -> Prompt:
    """Read the contents of a prompt file; `name` is for messages, and tells a .prompt file from Markdown.

    Raises:
        ConfigError: its frontmatter is wrong.
    """
    name = printable(name)
    if len(content) > MAX_BYTES:
        raise ConfigError(Mistake(f"is larger than {MAX_BYTES} bytes, the limit of a prompt file", name))
    text = _decoded(content, name) if isinstance(content, bytes) else content.removeprefix("\ufeff")
    head, body, first_line = _split(text, name)
    if head is None:
        return Prompt(name, None, body, tuple(_outside(body)))
    if found := _CONTROL.search(head):
        line, column = _place(head, found.start())
        where = Mistake(f"has the character U+{ord(found[0]):04X}; remove it", name, line + first_line - 1, column)
        raise ConfigError(where)
    node, wrong = safeyaml.parse(head, name, first_line)
    return _Reader(name, wrong).prompt(node, body)


def _decoded(content: bytes, name: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(Mistake("is UTF-16; save it as UTF-8", name, 1, 1))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place(content[: error.start].decode("utf-8-sig", "replace"), None)
        text = f"has the byte 0x{content[error.start]:02x}, which is not UTF-8; save it as UTF-8"
        raise ConfigError(Mistake(text, name, line, column)) from error


def _place(text: str, position: int | None) -> tuple[int, int]:
    before = text if position is None else text[:position]
    breaks = list(_BREAK.finditer(before))
    return len(breaks) + 1, len(before) - (breaks[-1].end() if breaks else 0) + 1


def _split(text: str, name: str) -> tuple[str | None, str, int]:
    """Frontmatter, body, and the line where the frontmatter begins. In a .prompt file comments may come before it."""
    lines = _lines(text)
    first = next(lines, (0, 0, ""))
    number = 1
    while name.endswith(".prompt") and (not first[2].strip() or first[2].startswith("#")):
        following = next(lines, None)
        if following is None:
            return None, text, 1
        first, number = following, number + 1
    if first[2].rstrip() != "---":
        return None, text, 1
    for start, end, line in lines:
        if line.rstrip() == "---":
            return text[first[1] : start], text[end:], number + 1
    raise ConfigError(Mistake("the frontmatter that begins here has no end; add a line --- after it", name, number, 1))


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each line begins, where the next one begins, and the line."""
    start = 0
    for found in _BREAK.finditer(text):
        yield start, found.end(), text[start : found.start()]
        start = found.end()
    yield start, len(text), text[start:]


class _Reader:
    """From nodes to what they ask for; collects mistakes and places on the way."""

    def __init__(self, name: str, wrong: list[Mistake]) -> None:
        self._name = name
        self._wrong = wrong
        self._places: dict[str, Place] = {}

    def prompt(self, node: Node | None, body: str) -> Prompt:
        if node is None or (isinstance(node, Scalar) and not node.text):
            return Prompt(self._name, None, body)
        if not isinstance(node, Mapping):
            text = "the frontmatter must be keys with values, such as sandbox: python"
            raise ConfigError(Mistake(text, self._name, node.place.line, node.place.column))
        keys = [key.text for key, _ in node.pairs if isinstance(key, Scalar)]
        values = [value for key, value in node.pairs if isinstance(key, Scalar) and key.text == KEY]
        config = self._config(values[0], keys) if values else None
        if self._wrong:
            raise ConfigError(*sorted(self._wrong, key=lambda one: (one.line or 0, one.column or 0)))
        notes = asked.notes(config) if config else [*_near_misses(keys), *_deeper(node)]
        return Prompt(self._name, config, body, tuple(notes), self._places)

    def _config(self, node: Node, keys: list[str]) -> SandboxConfig | None:
        value = self._value(node, KEY)
        if isinstance(value, str):
            value = {"runtime": value}
            self._places[f"{KEY}.runtime"] = node.place
        elif not isinstance(value, dict):
            why = value.why if isinstance(value, Odd) else f"is {mistakes.shown(value)}"
            text = f"{why}; write a runtime such as python, or keys such as runtime: python"
            if value is None and (beside := [key for key in keys if key in SandboxConfig.model_fields]):
                text = f"{why}; put spaces before {', '.join(beside)}, so that it belongs to {KEY}"
            self._note(node.place, KEY, text)
            return None
        try:
            return SandboxConfig.model_validate(value)
        except ValidationError as error:
            for one in error.errors():
                self._explain(one)
        return None

    def _value(self, node: Node, key: str) -> Any:
        """The node as Python values; what has no clear meaning is `Odd` and will not pass the model."""
        self._places.setdefault(key, node.place)
        if isinstance(node, Alias):
            return Odd("is an alias; write the value out")
        if node.tagged:
            return Odd("has a tag; leave it out")
        if isinstance(node, Scalar):
            return safeyaml.scalar(node)
        if isinstance(node, Sequence):
            return [self._value(item, f"{key}[{index}]") for index, item in enumerate(node.items)]
        found: dict[str, Any] = {}
        for name, value in node.pairs:
            if not isinstance(name, Scalar) or not isinstance(safeyaml.scalar(name), str):
                self._note(name.place, key, "has a key that is not a word")
            elif name.text not in found:  # of two, the loader has told already
                inner = f"{key}.{name.text}"
                self._places[f"{inner}:"] = name.place
                found[name.text] = self._value(value, inner)
        return found

    def _explain(self, error: Any) -> None:
        if error["type"] == "contradiction":
            for key, text in error["ctx"]["found"]:
                path = f"{KEY}.{key}"
                self._note(self._places.get(path, self._places[KEY]), path, text)
            return
        path = KEY + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
        if error["type"] == "extra_forbidden":
            self._note(self._places[f"{path}:"], path, _unknown(*error["loc"]))
            return
        value = error["input"]
        if isinstance(value, Odd) and error["type"] != "model_type":
            text = value.why
            if error["type"] == "string_type" and not text.endswith("out"):
                text += "; put it in quotes if it is text"
        else:
            text = mistakes.explain(error | {"input": None if isinstance(value, Odd) else value})
            if isinstance(value, str):
                text += mistakes.amount(path, value)
            if path == f"{KEY}.network" and isinstance(value, bool):
                text += f"; write allow_network: {str(value).lower()}"
        self._note(self._places.get(path, self._places[KEY]), path, text)

    def _note(self, place: Place, key: str, text: str) -> None:
        self._wrong.append(Mistake(text, self._name, place.line, place.column, printable(key)))


_GROUPS: dict[str, type[BaseModel]] = {"": SandboxConfig, "limits": SandboxLimits, "network": SandboxNetwork}


def _unknown(*path: str | int) -> str:
    """What to say of a key that is not there: where it belongs, or which one is near."""
    *groups, key = map(str, path)
    group = groups[-1] if groups else ""
    for other, model in _GROUPS.items():
        if other != group and key in model.model_fields:
            return f"there is no such key here; it belongs {f'under {other}' if other else f'directly under {KEY}'}"
    if key in _HINTS and not group:
        return f"there is no such key; {_HINTS[key]}"
    return "there is no such key" + mistakes.suggestion(key, _GROUPS[group].model_fields)


def _deeper(node: Mapping) -> Iterator[str]:
    for key, value in node.pairs:
        inner = value.pairs if isinstance(value, Mapping) else []
        if isinstance(key, Scalar) and any(isinstance(name, Scalar) and name.text == KEY for name, _ in inner):
            yield f"there is a key {KEY} beneath {printable(key.text)}; it counts only if nothing stands before it"


def _outside(body: str) -> Iterator[str]:
    """A file without frontmatter whose author seems to have meant one."""
    for _, (_, _, line) in zip(range(_LOOKED_AT), _lines(body), strict=False):
        if re.match(rf"\s*{KEY}\s*:", line):
            yield f"there is a line with {KEY}, and no frontmatter: it counts between two lines ---, at the very top"
            return


def _near_misses(keys: list[str]) -> Iterator[str]:
    for key in keys:
        if "did you mean" in mistakes.suggestion(key, [KEY]):
            yield f"there is a key {printable(key)}, and none named {KEY}: did you mean that?"

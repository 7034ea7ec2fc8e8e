"""YAML as nodes with their places, read within bounds.

Nothing is constructed: no tag does anything, an alias is never followed, and a scalar stays text until somebody asks
what it means. So a file can neither run code nor blow up. What YAML's versions read differently is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from .errors import ConfigError, Mistake, printable

MAX_CHARACTERS = 64 << 10
MAX_DEPTH = 32
MAX_NODES = 4000
MAX_EXPANDED_NODES = 20_000
"""with every alias replaced by what it stands for"""
_STANDARD_TAGS = "tag:yaml.org,2002:"
_STANDARD = {"str", "int", "float", "bool", "null", "map", "seq"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file; the first line and the first column are 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    text: str
    plain: bool
    """not in quotes and not a block"""
    tagged: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    place: Place
    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    place: Place
    items: list[Node] = field(default_factory=list)
    tagged: bool = False


@dataclass(frozen=True, slots=True)
class Mapping:
    place: Place
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    tagged: bool = False


Node: TypeAlias = Scalar | Alias | Sequence | Mapping


def parse(text: str, file: str, first_line: int = 1) -> tuple[Node | None, list[Mistake]]:
    """The one document of a text, None if it is empty, and the keys that are there twice.

    Raises:
        ConfigError: it is no YAML, or too much of it; with the place.
    """
    reader = _Reader(file, first_line)
    if len(text) > MAX_CHARACTERS:
        raise reader.wrong(Place(first_line, 1), f"is longer than {MAX_CHARACTERS} characters, the limit")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster, where it is
    try:
        return reader.document(yaml.parse(text, Loader=loader)), reader.mistakes
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = reader.place(mark) if mark else Place(first_line, 1)
        problem = _PROBLEMS.get(error.problem or "", error.problem or "it cannot be read")
        raise reader.wrong(place, f"is not YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise reader.wrong(Place(first_line, 1), f"is not YAML: {printable(str(error))}") from error


_PROBLEMS = {
    "found character '\\t' that cannot start any token": "a line begins with a tab; use spaces",
    "found character that cannot start any token": "a character cannot stand here; is it a tab, @ or ` without quotes?",
    "mapping values are not allowed here": "there is a second colon in the line; put the text in quotes",
    "mapping values are not allowed in this context": "there is a second colon in the line; put the text in quotes",
}


class _Reader:
    """Builds nodes from events, and counts."""

    def __init__(self, file: str, first_line: int) -> None:
        self._file, self._first_line = file, first_line
        self._nodes = 0
        self._path: list[str] = []
        self.mistakes: list[Mistake] = []
        self._anchors: dict[str, int] = {}
        """anchor -> how many nodes it stands for, aliases in it included"""

    def place(self, mark: Any) -> Place:
        return Place(mark.line + self._first_line, mark.column + 1)

    def wrong(self, place: Place, text: str) -> ConfigError:
        return ConfigError(Mistake(f"the frontmatter {text}", self._file, place.line, place.column))

    def document(self, events: Iterator[Any]) -> Node | None:
        found: Node | None = None
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                if found is not None:
                    raise self.wrong(self.place(event.start_mark), "has a second document in it")
                found, _ = self._node(event, events, 1)
        return found

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> tuple[Node, int]:
        place = self.place(event.start_mark)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.wrong(place, f"has more than {MAX_NODES} values, the limit")
        if depth > MAX_DEPTH:
            raise self.wrong(place, f"is nested more than {MAX_DEPTH} deep, the limit")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self.wrong(place, f"has an alias *{printable(str(event.anchor))} of something that is not there")
            return Alias(place, str(event.anchor)), self._anchors[event.anchor]
        tagged = self._tagged(event, place)
        node: Node
        size = 1
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(place, event.value, event.style is None or event.style == "", tagged)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = Sequence(place, tagged=tagged)
            for child in self._children(events, yaml.SequenceEndEvent):
                item, more = self._node(child, events, depth + 1)
                node.items.append(item)
                size += more
        else:
            node = Mapping(place, tagged=tagged)
            seen: dict[str, Place] = {}
            for child in self._children(events, yaml.MappingEndEvent):
                key, first = self._node(child, events, depth + 1)
                self._path.append(key.text if isinstance(key, Scalar) else "?")
                self._no_key_twice(key, seen)
                value, second = self._node(next(events), events, depth + 1)
                self._path.pop()
                node.pairs.append((key, value))
                size += first + second
        if size > MAX_EXPANDED_NODES:
            raise self.wrong(place, f"grows to more than {MAX_EXPANDED_NODES} values by its aliases")
        if event.anchor is not None:
            self._anchors[event.anchor] = size
        return node, size

    def _children(self, events: Iterator[Any], end: type[Any]) -> Iterator[Any]:
        for event in events:
            if isinstance(event, end):
                return
            yield event

    def _tagged(self, event: Any, place: Place) -> bool:
        if event.tag is None or event.tag == "!":
            return False
        if event.tag.removeprefix(_STANDARD_TAGS) not in _STANDARD:
            raise self.wrong(place, f"has the tag {printable(event.tag)}, which is not allowed")
        return True

    def _no_key_twice(self, key: Node, seen: dict[str, Place]) -> None:
        if not isinstance(key, Scalar):
            return
        if (first := seen.setdefault(key.text, key.place)) is not key.place:
            path = printable(".".join(self._path))
            text = f"is there twice, first in line {first.line}; keep one of them"
            self.mistakes.append(Mistake(text, self._file, key.place.line, key.place.column, path))


@dataclass(frozen=True, slots=True)
class Odd:
    """A scalar that YAML's versions and programs read differently."""

    why: str


_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_OTHER_BASE = re.compile(r"[-+]?0([xX][0-9a-fA-F_]+|[oO]?[0-7_]+|[bB][01_]+)")
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_OLD_BOOLEANS = {"yes", "no", "on", "off", "y", "n"}
_MAX_DIGITS = 40


def scalar(node: Scalar) -> str | int | float | bool | Odd | None:
    """What a scalar means, where all agree on it."""
    text = node.text
    if node.tagged:
        return Odd("has a tag; leave it out")
    if not node.plain:
        return text
    if text in (text.lower(), text.capitalize(), text.upper()) and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.lower() in _OLD_BOOLEANS:
        return Odd(f"{text} is true or false in some versions of YAML and text in others; write true or false")
    if _INT.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return float(text)
    return _odd(text) or text


def _odd(text: str) -> Odd | None:
    if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        return Odd(f"is a number of {len(text)} digits, which is too large")
    if _SEXAGESIMAL.fullmatch(text):
        seconds = 0.0
        for part in text.lstrip("+-").replace("_", "").split(":"):
            seconds = seconds * 60 + float(part)
        return Odd(f"{text} is {seconds:g} in some versions of YAML (base 60) and text in others; write {seconds:g}")
    if _OTHER_BASE.fullmatch(text):
        return Odd(f"{text} is not decimal, and YAML's versions read it differently; write a decimal number")
    if _UNDERSCORED.fullmatch(text):
        return Odd(f"{text} has _ between its digits; write {text.replace('_', '')}")
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        return Odd(f"{text} is not a number that one can count to")
    if _DATE.fullmatch(text):
        return Odd(f"YAML reads {text} as a date")
    return None

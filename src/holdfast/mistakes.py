"""What a validator found wrong, in words that tell a newcomer what to write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .asked import short

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?`, or all there are if nothing is near and they are few."""
    names = list(known)
    near = [one for one in names if one.startswith(f"{name.lower()}_")]
    near = near or get_close_matches(name.lower(), names, 1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(names)}" if len(names) <= 20 else ""


def shown(value: Any) -> str:
    """A value as its writer wrote it, more or less."""
    if isinstance(value, str):
        return f"the text {short(value)}"
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return _number(value) if isinstance(value, int | float) else f"something of the type {type(value).__name__}"


def _number(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not write a number of more than some thousand digits
        return "a number of very many digits"
    return text if len(text) <= 30 else f"a number of {len(text)} digits"


def explain(error: ErrorDetails) -> str:  # noqa: PLR0912  a table
    """One error of pydantic in our words."""
    value, about = error["input"], error.get("ctx", {})
    match error["type"]:
        case "bool_type":
            return f"must be true or false, not {shown(value)}"
        case "int_type":
            return f"must be a whole number, not {shown(value)}{_unquoted(value)}"
        case "float_type":
            return f"must be a number, not {shown(value)}{_unquoted(value)}"
        case "string_type":
            short_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 64
            quoted = f"; put it in quotes: {json.dumps(str(value))}" if short_number else ""
            return f"must be text, not {shown(value)}{quoted}"
        case "literal_error":
            choices = str(about["expected"]).replace("'", "")
            hint = suggestion(value, choices.replace(" or ", ", ").split(", ")) if isinstance(value, str) else ""
            return f"must be {choices}, not {shown(value)}" + (hint if "did you mean" in hint else "")
        case "greater_than":
            return f"must be more than {about['gt']:g}, not {shown(value)}"
        case "greater_than_equal":
            return f"must be at least {about['ge']:g}, not {shown(value)}"
        case "less_than_equal":
            return f"must be at most {_plain(about['le'])}, not {shown(value)}"
        case "finite_number":
            return f"must be a number that ends, not {shown(value)}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {shown(value)}" + (f"; write [{value}]" if _is_word(value) else "")
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must have keys of its own beneath it" + ("" if value is None else f", not {shown(value)}")
        case "value_error":
            return str(about["error"])
        case "int_from_float":
            return f"must be a whole number, not {shown(value)}"
    return str(error["msg"])


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.-]{1,40}", value) is not None


def amount(key: str, text: str) -> str:
    """What to write where somebody wrote an amount with its unit; empty if that is not what it is."""
    found = re.fullmatch(r"(\d{1,9}) ?([a-zA-Z]{1,7})", text)
    if not found:
        return ""
    for ending, units in _UNITS.items():
        if key.endswith(ending) and (factor := units.get(found[2].lower())):
            return f"; write {int(found[1]) * factor}"
    return ""


_UNITS = {
    "_seconds": {"s": 1, "sec": 1, "seconds": 1, "m": 60, "min": 60, "minutes": 60, "h": 3600, "hours": 3600},
    "_mb": {"m": 1, "mb": 1, "mi": 1, "mib": 1, "g": 1024, "gb": 1024, "gi": 1024, "gib": 1024},
    "_millicores": {"m": 1, "cpu": 1000, "cpus": 1000, "cores": 1000},
}


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _unquoted(value: Any) -> str:
    if isinstance(value, str) and value.isdecimal():
        return f"; write it without quotes: {value}"
    return ""

"""What a model is shown: text that is text, bounded, with a marker where something is missing."""

from __future__ import annotations

import codecs
from typing import Any

from ..results import ExecResult, Output


def output(found: Output) -> str:
    """What was kept of a stream; where its middle is missing, the marker says so."""
    if not found.truncated:
        return found.text
    head = found.head.decode("utf-8", "replace")
    tail = found.tail.decode("utf-8", "replace")
    kept = len(found.head) + len(found.tail)
    return f"{head}\n[...truncated at {kept} chars...]\n{tail}"


def result(ended: ExecResult) -> dict[str, Any]:
    """A program's end as a tool tells it."""
    told = ended.as_tool()
    told["stdout"], told["stderr"] = output(ended.stdout_output), output(ended.stderr_output)
    return told


def text(data: bytes, truncated: bool) -> str | None:
    """The bytes as text, if they are text; of a character that a cut went through nothing is shown."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None

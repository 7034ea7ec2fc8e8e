"""What a model is shown: text that is text, bounded, with a marker where something is missing."""

from __future__ import annotations

import codecs
from typing import Any

from ..results import ExecResult, Output, OutputChunk, OutputRead
from ..secrets import Masker


def output(found: Output) -> str:
    """What was kept of a stream; where its middle is missing, the marker says so."""
    head, tail = found.parts
    if not found.truncated:
        return head
    return f"{head}\n[...truncated at {len(head) + len(tail)} chars...]\n{tail}"


def result(ended: ExecResult) -> dict[str, Any]:
    """A program's end as a tool tells it."""
    told = ended.as_tool()
    told["stdout"], told["stderr"] = output(ended.stdout_output), output(ended.stderr_output)
    return told


def chunks(read: OutputRead, most: int, masker: Masker) -> tuple[list[dict[str, Any]], int]:
    """At most so many pieces of what was read, and where the next read begins.

    Pieces of one stream that follow each other are one. A character, or what may be a secret, that goes on after the
    last piece is left for the next read, so that no cut spoils the one or shows the other.
    """
    joined: list[OutputChunk] = []
    for one in read.chunks:
        last = joined[-1] if joined else None
        if last and last.stream == one.stream and last.position + len(last.data) == one.position:
            joined[-1] = OutputChunk(last.stream, last.position, last.data + one.data)
        else:
            joined.append(one)
    taken, after = joined[:most], read.next
    if len(taken) < len(joined):
        after = joined[most].position
    elif taken and not read.ended and (held := _unfinished(taken[-1].data, masker)):
        last = taken.pop()
        after -= held
        taken += [OutputChunk(last.stream, last.position, last.data[:-held])] if held < len(last.data) else []
    return [
        {"seq": one.position, "stream": one.stream, "text": one.data.decode("utf-8", "replace")} for one in taken
    ], after


def _unfinished(data: bytes, masker: Masker) -> int:
    """How many of the last bytes may be the beginning of a character or of a secret."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return max(len(decoder.getstate()[0]), masker.unfinished(data))


def text(data: bytes, truncated: bool) -> str | None:
    """The bytes as text, if they are text; of a character that a cut went through nothing is shown."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None

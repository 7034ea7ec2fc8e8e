"""What a run takes out of its workspace, by pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...guest.protocol import FileKind
from .files import FakeFiles

_MAX_LISTED = 100_000
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matching(files: FakeFiles, patterns: Sequence[str]) -> list[tuple[str, int]]:
    """Path and size of the files that match, by name. The rules are the guest's: see `RunRequest.artifacts`."""
    wanted = [_compiled(pattern) for pattern in patterns]
    if not wanted:
        return []
    found = files.list(".", recursive=True, max_entries=_MAX_LISTED)
    return sorted(
        (entry.path, entry.size_bytes)
        for entry in found.entries
        if entry.kind is FileKind.FILE and any(pattern.fullmatch(entry.path) for pattern in wanted)
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    text = pattern.removeprefix("./").rstrip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(_WILDCARDS.get(part, re.escape(part)) for part in parts) + "(?:/.*)?", re.DOTALL)

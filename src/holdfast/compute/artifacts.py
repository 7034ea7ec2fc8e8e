"""Files that a run leaves and the caller asked for, by pattern and within the caps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config import Settings
from ..guest.client import GuestClient
from ..results import Artifact as Artifact
from ..results import FileKind

_MAX_LISTED = 100_000


async def collect(
    guest: GuestClient, patterns: Sequence[str], config: Settings
) -> tuple[tuple[Artifact, ...], tuple[str, ...]]:
    """The artifacts, and the paths of those that matched but were over a cap."""
    if not patterns:
        return (), ()
    wanted = [_compiled(pattern) for pattern in patterns]
    listing = await guest.list_files(".", recursive=True, max_entries=_MAX_LISTED)
    matching = sorted(
        (
            entry
            for entry in listing.entries
            if entry.kind is FileKind.FILE and any(pattern.fullmatch(entry.path) for pattern in wanted)
        ),
        key=lambda entry: entry.path,
    )
    kept: list[Artifact] = []
    skipped: list[str] = []
    room = config.max_artifact_bytes
    for entry in matching:
        if entry.size_bytes > room or len(kept) >= config.max_artifacts_count:
            skipped.append(entry.path)
            continue
        content, truncated, size = await guest.read_file(entry.path, max_bytes=room)
        if truncated:  # it grew since it was listed
            skipped.append(entry.path)
            continue
        kept.append(Artifact(entry.path, size, content))
        room -= len(content)
    if listing.truncated:
        skipped.append(f"… more than {_MAX_LISTED} files: the rest was not looked at")
    return tuple(kept), tuple(skipped)


def _compiled(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within one folder, `**` goes through any number; a folder stands for all that is in it."""
    text = pattern.removeprefix("./").rstrip("/")
    out: list[str] = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", text):
        out.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)))
    return re.compile("".join(out) + "(?:/.*)?", re.DOTALL)

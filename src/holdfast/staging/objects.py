"""How an object lies in a bucket: the format that all NATS clients share.

    stream   OBJ_<bucket>
    pieces   $O.<bucket>.C.<nuid>                   in order, 128 KiB each but the last
    meta     $O.<bucket>.M.<base64url of the name>  JSON; only the last counts, written when all pieces are there

What is read here may have been written by anybody: a nuid with a wildcard in it would name other objects' pieces.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import string
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..asked import short
from ..errors import StagedFileDamaged, printable

PIECE_BYTES = 128 << 10
DIGEST = "SHA-256="
_NUID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LETTERS = string.digits + string.ascii_letters
_MOST = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """An object of a bucket."""

    bucket: str
    name: str
    nuid: str
    size_bytes: int
    pieces: int
    digest: str
    """SHA-256=…, base64url"""
    modified: float
    """seconds since 1970, by the server's clock; 0: it is not known"""
    deleted: bool = False
    link: bool = False
    sequence: int = 0
    """of the meta message, by which a change is noticed"""

    @property
    def pieces_subject(self) -> str:
        return f"$O.{self.bucket}.C.{self.nuid}"

    @property
    def meta_subject(self) -> str:
        return meta_subject(self.bucket, self.name)

    def as_meta(self) -> bytes:
        """The JSON that other clients read too."""
        told = {
            "name": self.name,
            "bucket": self.bucket,
            "nuid": self.nuid,
            "size": self.size_bytes,
            "mtime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "chunks": self.pieces,
            "digest": self.digest,
            "options": {"max_chunk_size": PIECE_BYTES},
        }
        return json.dumps(told | ({"deleted": True} if self.deleted else {})).encode()

    def as_tool(self) -> dict[str, Any]:
        return {
            "file_key": printable(self.name),
            "size_bytes": self.size_bytes,
            "digest": self.digest,
            "modified_ms": round(self.modified * 1000),
        }


def stream(bucket: str) -> str:
    return f"OBJ_{bucket}"


def meta_subject(bucket: str, name: str) -> str:
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def name_of(bucket: str, subject: str) -> str | None:
    """The name that a record is about; None: it cannot be one."""
    try:
        return base64.urlsafe_b64decode(subject.removeprefix(f"$O.{bucket}.M.")).decode()
    except (ValueError, binascii.Error):
        return None


def new_nuid() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(22))


def digest_text(digest: bytes) -> str:
    return DIGEST + base64.urlsafe_b64encode(digest).decode()


def digest_bytes(file: StagedFile) -> bytes:
    """Raises:
    StagedFileDamaged: there is none, or none that we know.
    """
    kind, _, text = file.digest.partition("=")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if kind.upper() != "SHA-256" or len(found) != 32:
        raise StagedFileDamaged(f"the staged file {short(file.name)} has no digest that could be checked")
    return found


def parse(bucket: str, meta: bytes, *, name: str, sequence: int, modified: float) -> StagedFile:
    """What the meta message of `name` says.

    Raises:
        StagedFileDamaged: it is no meta, or another object's, or says what cannot be.
    """
    try:
        told = json.loads(meta)
        found = told["name"]
        size, pieces = told.get("size") or 0, told.get("chunks") or 0
        nuid, digest = told.get("nuid") or "", told.get("digest") or ""
        options = told.get("options") or {}
        texts, numbers = (found, nuid, digest), (size, pieces)
        good = all(isinstance(one, str) for one in texts) and all(type(one) is int for one in numbers)
        link = bool(options.get("link"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StagedFileDamaged(f"the store's record of {short(name)} cannot be read") from None
    if not good or found != name or not all(0 <= one <= _MOST for one in numbers):
        raise StagedFileDamaged(f"the store's record of {short(name)} says what cannot be")
    deleted = bool(told.get("deleted"))
    if not link and not deleted and not _NUID.fullmatch(nuid):
        raise StagedFileDamaged(f"the store's record of {short(found)} does not say where its contents are")
    return StagedFile(
        bucket=bucket,
        name=found,
        nuid=nuid if _NUID.fullmatch(nuid) else "",
        size_bytes=size,
        pieces=pieces,
        digest=digest,
        modified=modified,
        deleted=deleted,
        link=link,
        sequence=sequence,
    )

"""Labels on our containers, signed: an image's own labels, or a stranger's container, cannot pose as ours.

The key is HOLDFAST_OWNER_KEY, else a file of this user. All processes that share sessions need the same one; a client
in a container of its own is given it in its environment.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict
from pathlib import Path

from ...abc import Effective, SandboxSpec

PREFIX = "holdfast."
MANAGED = PREFIX + "managed"
OWNER = PREFIX + "owner"
_NAMES = ("managed", "owner", "name", "created", "expiry", "keep_for", "digest", "effective", "key")


def owner_key() -> bytes:
    given = os.environ.get("HOLDFAST_OWNER_KEY")
    return given.encode() if given else _key_of_this_user()


@functools.cache
def _key_of_this_user() -> bytes:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "holdfast"
    path = folder / "owner.key"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f"owner.key.{secrets.token_hex(4)}"
        part.touch(mode=0o600)
        part.write_text(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(part, path)  # whoever comes first makes the key
        part.unlink()
        return path.read_bytes()


def owner() -> str:
    """Tells the owner's containers from those of others on one daemon, and tells nothing of the key."""
    return hmac.new(owner_key(), b"owner", hashlib.sha256).hexdigest()[:16]


def make(spec: SandboxSpec, effective: Effective, created_at: float) -> dict[str, str]:
    """All labels of a container."""
    labels = {
        MANAGED: "1",
        OWNER: owner(),
        PREFIX + "name": spec.name,
        PREFIX + "created": repr(created_at),
        PREFIX + "expiry": "" if spec.max_lifetime is None else repr(created_at + spec.max_lifetime),
        PREFIX + "keep_for": repr(spec.keep_for),
        PREFIX + "digest": spec.digest,
        PREFIX + "effective": json.dumps(asdict(effective)),
        PREFIX + "key": json.dumps(spec.labels),
    }
    return {**labels, PREFIX + "signature": _sign(labels)}


def verified(labels: dict[str, str] | None) -> dict[str, str] | None:
    """Our labels without their prefix; None if we did not write them.

    Only the names that `make` gives: an image may bring labels with our prefix, and must not hide its containers so.
    """
    found = labels or {}
    ours = {PREFIX + name: found[PREFIX + name] for name in _NAMES if PREFIX + name in found}
    if not hmac.compare_digest(found.get(PREFIX + "signature", "").encode(), _sign(ours).encode()):
        return None
    return {name.removeprefix(PREFIX): value for name, value in ours.items()}


def _sign(labels: dict[str, str]) -> str:
    return hmac.new(owner_key(), json.dumps(labels, sort_keys=True).encode(), hashlib.sha256).hexdigest()

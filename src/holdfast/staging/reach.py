"""Which files of the store a caller may read and write, and what the keys that it gives mean.

The files of a workflow lie under a prefix of their own, and only its agents reach them; the operator can open more to
all. A key is relative to the caller's own prefix, unless it begins with one that it may use; `/KEY` is always whole.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from urllib.parse import quote

from .. import asked
from ..asked import short
from ..code.keys import Namespace, SessionKey
from ..config import Settings
from ..errors import InvalidRequest, PolicyError

_MAX_BYTES = 1024
_ROOTS = ("workflows/", "agents/", "private/")
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, and a key or the beginning of keys in it."""

    bucket: str
    key: str

    def holds(self, other: Place) -> bool:
        return self.bucket in (other.bucket, _ALL) and (self.key == _ALL or other.key.startswith(self.key))

    def shown(self, usual: str) -> str:
        return self.key if self.bucket == usual else f"{self.bucket}:{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one caller may reach."""

    bucket: str
    """where keys without a bucket are"""
    own: str
    """what its own keys begin with"""
    base: str = ""
    """what the own keys of all callers begin with"""
    read: tuple[Place, ...] = ()
    write: tuple[Place, ...] = ()

    def readable(self, key: str, bucket: str | None = None) -> Place:
        """The file that is meant.

        Raises:
            InvalidRequest: this cannot be a key.
            PolicyError: it is not one that this caller may read.
        """
        return self._place(key, bucket, self.read, "read", "HOLDFAST_STAGING_READ")

    def writable(self, key: str, bucket: str | None = None) -> Place:
        """As `readable`, for writing and deleting."""
        return self._place(key, bucket, self.write, "write", "HOLDFAST_STAGING_WRITE")

    def bucket_of(self, bucket: str | None) -> str:
        """The bucket that is meant.

        Raises:
            InvalidRequest: none can have this name.
        """
        try:
            return asked.bucket(bucket) if bucket else self.bucket
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    def shown(self, place: Place) -> str:
        """The key by which this caller gets to the file."""
        by_itself = (Place(self.bucket, self.own), *(one for one in (*self.read, *self.write) if one.key != _ALL))
        return place.key if any(one.holds(place) for one in by_itself) else f"/{place.key}"

    def _place(self, key: str, bucket: str | None, more: tuple[Place, ...], verb: str, variable: str) -> Place:
        whole = key.startswith("/")
        place = Place(self.bucket_of(bucket), checked(key.removeprefix("/")))
        allowed = (Place(self.bucket, self.own), *more)
        if any(one.holds(place) for one in allowed if one.key != _ALL or whole or bucket):
            return place
        relative = Place(self.bucket, self.own + place.key)
        if not whole and place.bucket == self.bucket and not self._reserved(place.key):
            return Place(relative.bucket, checked(relative.key))
        told = ", ".join(f"{one.shown(self.bucket)}{'' if one.key == _ALL else '…'}" for one in allowed)
        raise PolicyError(
            f"the file {short(place.shown(self.bucket))} is not one to {verb} from here; allowed are {told} "
            f"(the operator sets {variable})"
        )

    def _reserved(self, key: str) -> bool:
        """Whether it is spelled like the whole key of some caller's file."""
        return key.startswith(tuple(self.base + root for root in _ROOTS))


def checked(key: str) -> str:
    """The key.

    Raises:
        InvalidRequest: it is empty, too long, no text, or has parts that say nothing.
    """
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("the key of a file holds a text that is none") from None
    if not 0 < size <= _MAX_BYTES or not key.isprintable():
        raise InvalidRequest(f"the key of a file has 1 to {_MAX_BYTES} bytes, all of them printable")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise InvalidRequest(f"{short(key)} is not the key of a file: it has an empty part, or one that is . or ..")
    return key


def own_prefix(settings: Settings, workflow: str | None = None, agent: str | None = None) -> str:
    """What the keys of a workflow begin with, or those of an agent without one; empty: nothing is anybody's own."""
    if workflow:
        return f"{settings.staging_prefix}workflows/{_part(workflow)}/"
    return f"{settings.staging_prefix}agents/{_part(agent)}/" if agent else ""


def reach(settings: Settings, workflow: str | None = None, agent: str | None = None) -> Reach:
    """What the agents of a workflow may reach; without a workflow, an agent; without both, nobody else."""
    return Reach(
        bucket=settings.staging_bucket,
        own=own_prefix(settings, workflow, agent) or f"{settings.staging_prefix}private/{secrets.token_hex(16)}/",
        base=settings.staging_prefix,
        read=_grants(settings, settings.staging_read),
        write=_grants(settings, settings.staging_write),
    )


def everything(settings: Settings, own: str = "") -> Reach:
    """What the person at the command line may reach; `own` is where keys begin that are not whole."""
    anywhere = (Place(_ALL, _ALL),)
    return Reach(bucket=settings.staging_bucket, own=own, base=settings.staging_prefix, read=anywhere, write=anywhere)


def of_session(settings: Settings, key: SessionKey) -> Reach:
    """What whoever holds a session may reach; keys begin with those of its workflow or agent."""
    ids = {key.namespace: key.id}
    return everything(settings, own_prefix(settings, ids.get(Namespace.WORKFLOW), ids.get(Namespace.AGENT)))


def _grants(settings: Settings, given: tuple[str, ...]) -> tuple[Place, ...]:
    found = [one.partition(":") if ":" in one else (settings.staging_bucket, "", one) for one in given]
    return tuple(Place(bucket, key) for bucket, _, key in found)


def _part(name: str) -> str:
    """A name as one part of a key: whatever is in it, it cannot be mistaken for two parts, or for another name."""
    return quote(name, safe="").replace(".", "%2E") if name.strip(".") == "" else quote(name, safe="")

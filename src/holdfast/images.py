"""Names of container images: one spelling for each, and which of them the operator allows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import errors

_REFERENCE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:@-]*")
_ID = re.compile(r"(sha256:)?[0-9a-f]{12,64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, taken apart: one spelling for one image."""

    repository: str
    """with its registry, such as docker.io/library/python"""
    tag: str
    """empty where only a digest was given"""
    digest: str

    def __str__(self) -> str:
        return self.repository + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse(text: str) -> Reference:
    """`python`, `library/python:latest` and `docker.io/library/python` are the same.

    Raises:
        InvalidRequest: it is no image reference, or an image's id, which anybody may have given to anything.
    """
    if not _REFERENCE.fullmatch(text) or len(text) > 255:
        raise errors.InvalidRequest(f"{errors.printable(text)!r} is not the name of an image")
    if _ID.fullmatch(text):
        raise errors.InvalidRequest("name an image by its repository, not by its id")
    name, at, digest = text.partition("@")
    head, slash, tail = name.partition("/")
    if not slash or not ("." in head or ":" in head or head == "localhost"):
        head, tail = "docker.io", name
    tail, colon, tag = tail.partition(":")
    head = "docker.io" if head == "index.docker.io" else head
    if head == "docker.io" and "/" not in tail:
        tail = f"library/{tail}"
    if (at and not _DIGEST.fullmatch(digest)) or tail != tail.lower() or not tail or ":" in tag or (colon and not tag):
        raise errors.InvalidRequest(f"{errors.printable(text)!r} is not the name of an image")
    return Reference(f"{head}/{tail}", tag or ("" if digest else "latest"), digest)


def normalise(text: str) -> str:
    """The one spelling of an image's name.

    Raises:
        InvalidRequest: see `parse`.
    """
    return str(parse(text))


def allow(text: str, rules: tuple[str, ...]) -> str:
    """What to run for an image that is asked for: its name, or its digest where the operator pinned that.

    A rule without a digest allows that name, whatever content it has. A rule with one (`python:3.11-slim@sha256:…`)
    allows that content only, under its tag or its digest. A digest that no rule names is not allowed.

    Raises:
        ImageNotAllowed: says what is allowed.
    """
    asked = parse(text)
    for rule in map(parse, rules):
        if rule.repository != asked.repository:
            continue
        if rule.digest and asked.digest in (rule.digest, "") and (asked.digest or rule.tag == asked.tag):
            return f"{rule.repository}@{rule.digest}"
        if not rule.digest and not asked.digest and rule.tag == asked.tag:
            return text
    raise errors.ImageNotAllowed(
        f"the image {text} is not allowed here; allowed are {', '.join(rules)} "
        "(the operator sets STATION_SANDBOX_ALLOWED_IMAGES)"
    )

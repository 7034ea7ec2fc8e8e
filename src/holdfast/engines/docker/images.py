"""Which image a sandbox runs on: normalised, allowed, there or pulled, and then pinned by its id."""

from __future__ import annotations

import re

from ... import errors
from .daemon import Client, said

_PULL_SECONDS = 600.0
_REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:@-]*")


def normalise(reference: str) -> str:
    """One spelling for one image: `python`, `library/python:latest`, `docker.io/library/python` are the same.

    Raises:
        InvalidRequest: it is no image reference, or an image's id, which anybody may have given to anything.
    """
    if not _REFERENCE.fullmatch(reference) or len(reference) > 255:
        raise errors.InvalidRequest(f"{errors.printable(reference)!r} is not the name of an image")
    if re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", reference):
        raise errors.InvalidRequest("name an image by its repository, not by its id")
    name, _, digest = reference.partition("@")
    head, slash, tail = name.partition("/")
    if not slash or not ("." in head or ":" in head or head == "localhost"):
        head, tail = "docker.io", name
    if head == "index.docker.io":
        head = "docker.io"
    if head == "docker.io" and "/" not in tail:
        tail = f"library/{tail}"
    if ":" not in tail and not digest:
        tail += ":latest"
    return f"{head}/{tail}" + (f"@{digest}" if digest else "")


def allow(reference: str, allowed: tuple[str, ...]) -> None:
    """Refuse what the operator did not allow.

    Raises:
        ImageNotAllowed: says what is allowed.
    """
    if normalise(reference) not in {normalise(image) for image in allowed}:
        raise errors.ImageNotAllowed(
            f"the image {reference} is not allowed here; allowed are {', '.join(allowed)} "
            "(the operator sets STATION_SANDBOX_ALLOWED_IMAGES)"
        )


def image_id(client: Client, reference: str) -> str:
    """The id of an image on the daemon, pulled if it is not there. Blocks.

    Raises:
        ImageNotFound: no registry that the daemon can reach has it.
    """
    from docker.errors import APIError, ImageNotFound

    for attempt in range(2):
        try:
            return str(client.inspect_image(reference)["Id"])
        except ImageNotFound:
            if attempt:
                break
            try:
                for line in client.pull(reference, stream=True, decode=True):
                    if "error" in line:
                        raise errors.ImageNotFound(
                            f"the image {reference} cannot be pulled: {errors.printable(line['error'])}"
                        )
            except APIError as error:
                raise errors.ImageNotFound(
                    f"the image {reference} is not there and cannot be pulled: {said(error)}"
                ) from error
    raise errors.ImageNotFound(f"the image {reference} is not there after it was pulled")

"""How what an author asks for is written: images, sessions, packages, names of variables, and what goes together.

Each function takes a text and gives it back, or raises ValueError with words that say what to write.
"""

from __future__ import annotations

import posixpath
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from . import errors, images, runtimes
from .compute.packages import checked_packages

if TYPE_CHECKING:
    from .config import SandboxConfig

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_TEXT = 256
_TAKEN = ("proc", "sys", "dev", "etc", "usr", "bin", "sbin", "lib", "lib64", "run", "tmp", "boot", "root")
_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SERVER = re.compile(r"(nats|tls|ws|wss)://[^/@\s]+/?")
_HOMES = ("/home", "/home/sandbox")


def image(text: str) -> str:
    """An image; the name of a runtime stands for its image."""
    short = runtimes.RUNTIMES.get(runtimes.ALIASES.get(text, text))
    if short is not None:
        return short.image
    try:
        images.normalise(text)
    except errors.InvalidRequest as error:
        raise ValueError(f"{error}; write it as in python:3.11-slim") from error
    return text


def session(text: str) -> str:
    if not text or len(text) > _MAX_TEXT or not text.isprintable():
        raise ValueError(f"a session's name has 1 to {_MAX_TEXT} printable characters")
    return text


def variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text) or len(text) > _MAX_TEXT:
        raise ValueError(f"{short(text)} is not the name of an environment variable: letters, digits and _")
    return text


def pip_package(text: str) -> str:
    return _package("python", text)


def npm_package(text: str) -> str:
    return _package("node", text)


def _package(runtime: str, text: str) -> str:
    try:
        checked_packages(runtime, [text])
    except errors.InvalidRequest as error:
        raise ValueError(errors.printable(str(error))) from error
    return text


def workdir(text: str) -> str:
    """A folder inside a sandbox that is made for the workspace."""
    parts = text.split("/")
    if not text.isprintable() or posixpath.normpath(text) != text or parts[0] or len(parts) < 2 or not parts[1]:
        raise ValueError("write an absolute path of a folder, such as /work")
    if parts[1] in _TAKEN or parts[1].startswith(".") or text in _HOMES:
        raise ValueError(f"{text} belongs to the sandbox; take a folder of its own, such as /work")
    return text


def network(text: str) -> str:
    """Addresses of a network, as 10.0.0.0/8; one address alone is one of them."""
    import ipaddress

    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError(f"{short(text)} is no network; write it as in 10.0.0.0/8, without bits behind it") from None


def bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError(f"{short(text)} is not the name of a bucket: letters, digits, _ and -")
    return text


def nats_server(text: str) -> str:
    """An address without a login in it, which would be shown wherever the address is."""
    if "@" in text:
        raise ValueError("write the address only; the login goes into HOLDFAST_NATS_USER and HOLDFAST_NATS_PASSWORD")
    if not _SERVER.fullmatch(text):
        raise ValueError(f"{short(text)} is not the address of a NATS server; write it as in nats://127.0.0.1:4222")
    return text


def key_prefix(text: str) -> str:
    """What keys of staged files begin with: whole parts, as of a path, and with a `/` at the end."""
    parts = text.strip("/").split("/")
    if text and (not text.isprintable() or any(part in ("", ".", "..") for part in parts)):
        raise ValueError(f"{short(text)} is not the beginning of a key; write it as in shared/")
    return f"{text.strip('/')}/" if text else ""


def key_grant(text: str) -> str:
    """PREFIX, or BUCKET:PREFIX; `*` is all keys."""
    name, colon, prefix = text.partition(":") if ":" in text else ("", "", text)
    if colon:
        bucket(name)
    whole = "*" if prefix == "*" else key_prefix(prefix)
    if not whole:
        raise ValueError("say which keys: the beginning of them, such as shared/, or * for all")
    return f"{name}{colon}{whole}"


def runtime_and_image(config: SandboxConfig) -> tuple[str, str | None]:
    """Which runtime, and which image if one was asked for.

    Code mode takes an image where a runtime stands. Without a runtime, compute mode is Python and code mode is Linux.
    """
    name = config.runtime
    if name is None:
        return ("python" if config.mode == "compute" else "bash"), config.image
    if _is_image(name):
        return "bash", name
    return runtimes.runtime(name).name, config.image


def _is_image(text: str) -> bool:
    return ":" in text or "/" in text


def contradictions(config: SandboxConfig) -> list[tuple[str, str]]:
    """What cannot be meant: key, and what to do."""
    found = list(_runtime(config))
    seconds = config.limits.timeout_seconds
    if None not in (config.timeout_seconds, seconds) and config.timeout_seconds != seconds:
        found.append(
            (
                "limits.timeout_seconds",
                f"says {seconds:g}, and timeout_seconds says {config.timeout_seconds:g}; keep one of them",
            )
        )
    if config.network and config.allow_network is not None and config.network.enabled != config.allow_network:
        found.append(
            (
                "network.enabled",
                f"says {str(config.network.enabled).lower()}, and allow_network says "
                f"{str(config.allow_network).lower()}; keep one of them",
            )
        )
    return found


def _runtime(config: SandboxConfig) -> list[tuple[str, str]]:
    name = config.runtime
    if name is not None and _is_image(name):
        if config.mode == "compute":
            return [("runtime", f"is python, node or bash in compute mode; for an image write image: {short(name)}")]
        if config.image is not None:
            return [("runtime", f"is the image {short(name)}, and image is {config.image}; keep one of them")]
        try:
            image(name)
        except ValueError as error:
            return [("runtime", str(error))]
    elif name is not None and runtimes.ALIASES.get(name.lower(), name.lower()) not in runtimes.RUNTIMES:
        near = get_close_matches(name.lower(), (*runtimes.RUNTIMES, *runtimes.ALIASES), 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(runtimes.RUNTIMES)}"
        return [("runtime", f"there is no runtime {short(name)}{hint}")]
    if config.mode == "code":
        return []
    kind = runtime_and_image(config)[0]
    return [
        (key, f"are for the runtime {needs}, and this one is {kind}")
        for key, needs in (("pip_packages", "python"), ("npm_packages", "node"))
        if getattr(config, key) and kind != needs
    ]


def notes(config: SandboxConfig) -> list[str]:
    """What was written and has no effect: no mistake, but somebody may have hoped for something."""
    if config.mode == "compute":
        return ["session has no effect in compute mode: each run has a fresh sandbox"] if config.session else []
    told = ["cache has no effect in code mode"] if config.cache else []
    if config.packages:
        told.append(
            "pip_packages and npm_packages have no effect in code mode: take an image that has them, or install them "
            "with a command where network is allowed"
        )
    return told


def short(text: str) -> str:
    """A text from a file as an error message may show it."""
    shown = errors.printable(text)
    return f'"{shown[:60]}…"' if len(shown) > 60 else f'"{shown}"'

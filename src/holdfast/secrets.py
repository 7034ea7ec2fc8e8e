"""Secrets: which values of our environment a sandbox gets, and how they are kept out of everything that leaves it.

Nothing of the environment passes but what the operator names: `pass_env` for every sandbox, `allowed_secrets` for the
agents that ask for them by name. A `Masker` replaces secrets in output, spans, logs and errors, also when they are
encoded in a common way, and also when a stream cuts them into pieces. It is a net against accidents: a program that
wants to get a secret out can always write it backwards.
"""

from __future__ import annotations

import base64
import json
import os
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from .asked import short, variable
from .config import Settings
from .errors import ConfigError, InvalidRequest, Mistake, PolicyError

MIN_CHARACTERS = 4
"""A shorter secret would be found in everything, and is none."""
MAX_BYTES = 64 << 10
_MIN_PART = 8
"""Shortest piece of a secret, a line or part of its base64 form, that is looked for by itself"""
_MASKS = "*#" + string.printable
_T = TypeVar("_T")


def passed_environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this process that every sandbox gets. One that is not set is left out."""
    if not settings.pass_env:
        return {}
    found = os.environ if environ is None else environ
    return {name: found[name] for name in settings.pass_env if name in found}


def resolve(names: Sequence[str], settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The values of secrets that an agent asks for.

    Raises:
        PolicyError: the operator does not allow one of them.
        ConfigError: one has no value here, or none that can be masked.
    """
    found = os.environ if environ is None else environ
    if refused := [name for name in names if name not in settings.allowed_secrets]:
        raise PolicyError(
            f"secrets: {', '.join(map(short, refused))} not allowed here; allowed are "
            f"{', '.join(settings.allowed_secrets) or 'none'} (the operator sets HOLDFAST_ALLOWED_SECRETS)"
        )
    if missing := [name for name in names if name not in found]:
        raise ConfigError(*(Mistake("is a secret that was asked for, and is not set", key=name) for name in missing))
    values = {name: found[name] for name in names}
    try:
        Masker(values)
    except InvalidRequest as error:
        raise ConfigError(str(error)) from error
    return values


class Masker:
    """Replaces secrets by `***`.

    Two secrets that overlap in a text are masked as one. The mask is never longer than what it hides, and holds no
    character of any secret, so that nothing new arises around it.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Takes name -> value.

        Raises:
            InvalidRequest: a name is no name, or a value is too short or too long to be masked. Never shows the value.
        """
        patterns: set[bytes] = set()
        for name, value in secrets.items():
            try:
                variable(name)
            except ValueError as error:
                raise InvalidRequest(str(error)) from error
            raw = value.encode("utf-8", "surrogateescape")
            if len(value) < MIN_CHARACTERS or not value.strip():
                raise InvalidRequest(
                    f"the secret {name} is shorter than {MIN_CHARACTERS} characters: it cannot be masked"
                )
            if len(raw) > MAX_BYTES:
                raise InvalidRequest(f"the secret {name} is longer than {MAX_BYTES} bytes: it cannot be masked")
            patterns.update(_forms(value, raw))
        self.patterns = tuple(sorted(patterns))
        taken = b"".join(self.patterns)
        self.mask = next((char.encode() * 3 for char in _MASKS if char.encode() not in taken), b"")

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def data(self, data: bytes) -> bytes:
        """The data without secrets."""
        if not any(pattern in data for pattern in self.patterns):
            return data
        stream = self.stream()
        return stream.feed(data) + stream.end()

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: _T) -> _T:
        """A value as JSON has it, or a tuple, bytes in it too, without secrets in any text of it, keys included."""
        found: Any = value
        if isinstance(found, str):
            found = self.text(found)
        elif isinstance(found, bytes):
            found = self.data(found)
        elif isinstance(found, Mapping):
            found = {self.value(name): self.value(inner) for name, inner in found.items()}
        elif isinstance(found, list | tuple):
            found = type(found)(self.value(inner) for inner in found)
        masked: _T = found
        return masked

    def unfinished(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a secret that goes on after them."""
        stream = self.stream()
        stream.feed(data)
        return stream.held

    def stream(self) -> MaskedStream:
        """A masker for data that comes in pieces, however they are cut."""
        return MaskedStream(self)


class MaskedStream:
    """Masks one stream of bytes. Holds back what may be the beginning of a secret."""

    def __init__(self, masker: Masker) -> None:
        self._patterns, self._mask = masker.patterns, masker.mask
        self._held = b""
        self._hidden = 0
        """how many of the held bytes belong to a secret whose mask is out already"""

    @property
    def held(self) -> int:
        """How many bytes it holds back."""
        return len(self._held)

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        return self._shown(self._held + data, final=False)

    def end(self) -> bytes:
        """What was held back."""
        return self._shown(self._held, final=True)

    def _shown(self, data: bytes, final: bool) -> bytes:
        certain = len(data) if final else self._certain(data)
        shown = bytearray()
        hidden = self._hidden
        for start, end in sorted(self._found(data)):
            if start >= certain:
                break
            if start >= hidden:
                shown += data[hidden:start] + self._mask
            hidden = max(hidden, end)
        shown += data[hidden:certain]
        self._held, self._hidden = data[certain:], max(0, hidden - certain)
        return bytes(shown)

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        for pattern in self._patterns:
            start = data.find(pattern)
            while start >= 0:
                yield start, start + len(pattern)
                start = data.find(pattern, start + 1)

    def _certain(self, data: bytes) -> int:
        """The first position from which the data could go on to be a secret; its end, if there is none."""
        certain = len(data)
        for pattern in self._patterns:
            start = data.find(pattern[:1], max(0, len(data) - len(pattern) + 1), certain)
            while start >= 0:
                if pattern.startswith(data[start:]):
                    certain = start
                    break
                start = data.find(pattern[:1], start + 1, certain)
        return certain


def _forms(value: str, raw: bytes) -> Iterator[bytes]:
    """The secret as it is, and as programs and formats commonly write it."""
    yield raw
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
    yield quote(raw, safe="").encode()
    yield quote_plus(raw).encode()
    yield raw.hex().encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            # A base64 character holds six bits, so the same text looks different by where in the data it stands, and
            # its first and last characters depend on its neighbours.
            encoded = encode(bytes(before) + raw)
            part = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[(before + len(raw)) % 3]]
            if len(part) >= _MIN_PART:
                yield part
    lines = [line.strip() for line in raw.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= _MIN_PART)

"""What JetStream answers to a request, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import errors

_NO_BUCKET, _NO_MESSAGE, _NOT_THE_LAST, _THERE = 10059, 10037, 10071, 10058
_NO_JETSTREAM = (10039, 10076)
_FULL = (10023, 10047, 10077, 10122)
_REFUSED = 10109


def no_bucket(answer: Mapping[str, Any]) -> bool:
    return _number(answer) == _NO_BUCKET


def no_message(answer: Mapping[str, Any]) -> bool:
    return _number(answer) == _NO_MESSAGE


def already_there(answer: Mapping[str, Any]) -> bool:
    """A bucket of this name, with other settings than ours."""
    return _number(answer) == _THERE


def overtaken(answer: Mapping[str, Any]) -> bool:
    """Somebody else has written meanwhile what was to be replaced."""
    return _number(answer) == _NOT_THE_LAST


def _number(answer: Mapping[str, Any]) -> object:
    error = answer.get("error")
    return error.get("err_code") if isinstance(error, dict) else None


def failure(answer: Mapping[str, Any], address: str) -> errors.StagingError:
    """The error that an answer tells."""
    error = answer.get("error")
    told = error if isinstance(error, dict) else {}
    code, number = told.get("code"), told.get("err_code")
    words = errors.printable(str(told.get("description", error)))[:200]
    if number in _NO_JETSTREAM:
        return errors.StagingUnavailable(f"the object store at {address} has no JetStream for us: {words}")
    if number in _FULL or "maximum" in words or "resource limits" in words:
        return errors.StagingFull(f"the object store at {address} has no room: {words}")
    if code in (401, 403) or number == _REFUSED:
        return errors.StagingDenied(f"the object store at {address} does not allow it: {words}")
    return errors.StagingError(f"the object store at {address} says: {words}")

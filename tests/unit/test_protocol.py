"""The protocol as it is written down: golden files that both ends read, generated Go, text, error codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast import errors
from holdfast.guest import protocol
from holdfast.guest.protocol import ErrorCode, Frame, from_wire, to_wire

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
MESSAGES: dict[str, type[Frame]] = {kind.__name__: kind for kind in Frame.__subclasses__()}

names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff\udcfe")
)
"""what Linux can have as a name, as Python holds it"""


def golden(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return content


def test_every_message_has_a_golden_file_and_every_file_a_message() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_golden_files_make_the_round_trip(name: str) -> None:
    message = MESSAGES[name].model_validate_json((GOLDEN / f"{name}.json").read_bytes())
    assert json.loads(message.model_dump_json(exclude_none=True)) == golden(name)


@pytest.mark.parametrize("name", MESSAGES)
def test_golden_files_leave_no_field_out(name: str) -> None:
    assert set(golden(name)) == set(MESSAGES[name].model_fields)


@pytest.mark.parametrize("name", MESSAGES)
def test_no_message_takes_what_it_does_not_know_or_goes_without_what_it_needs(name: str) -> None:
    kind, whole = MESSAGES[name], golden(name)
    with pytest.raises(ValidationError):
        kind.model_validate_json(json.dumps(whole | {"unknown": 1}))
    for field, info in kind.model_fields.items():
        less = json.dumps({key: value for key, value in whole.items() if key != field})
        if info.is_required():
            with pytest.raises(ValidationError):
                kind.model_validate_json(less)
        else:
            kind.model_validate_json(less)


@pytest.mark.parametrize("name", [name for name, kind in MESSAGES.items() if "op" in kind.model_fields])
def test_requests_are_found_by_their_op(name: str) -> None:
    assert type(protocol.REQUESTS.validate_json(json.dumps(golden(name)))) is MESSAGES[name]


@pytest.mark.parametrize("name", [name for name, kind in MESSAGES.items() if "type" in kind.model_fields])
def test_answers_are_found_by_their_type(name: str) -> None:
    assert type(protocol.ANSWERS.validate_json(json.dumps(golden(name)))) is MESSAGES[name]


def test_defaults_are_none_or_a_tag() -> None:
    """A default in Python would be a different zero value in Go."""
    for kind in MESSAGES.values():
        for field, info in kind.model_fields.items():
            assert info.is_required() or info.default is None or field in ("op", "type"), (kind, field)


def test_the_generated_go_is_current() -> None:
    command = [sys.executable, str(ROOT / "src" / "guest" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_an_exception(code: ErrorCode) -> None:
    error = errors.from_code(code, "why")
    assert type(error) is not errors.SandboxError
    own = {ErrorCode.SHUTTING_DOWN: "session_closed", ErrorCode.INTERNAL: "engine_failed"}
    assert error.code == own.get(code, code.value)
    assert str(error) == "why"


def test_codes_are_the_exceptions_own_and_no_two_are_equal() -> None:
    def below(kind: type[errors.SandboxError]) -> list[type[errors.SandboxError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    codes = [kind.code for kind in below(errors.SandboxError)]
    assert len(codes) == len(set(codes))


def test_what_a_guest_says_cannot_drive_a_terminal() -> None:
    error = errors.from_code("not_found", "\x1b]0;title\x07 gone\n")
    assert str(error).isprintable()


@given(names)
def test_text_makes_the_round_trip(text: str) -> None:
    wire = to_wire(text)
    assert from_wire(wire) == text
    assert json.loads(json.dumps(wire)) == wire
    wire.encode()  # is text: no lone surrogate is left


@given(st.binary())
def test_bytes_make_the_round_trip(raw: bytes) -> None:
    text = raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    assert from_wire(to_wire(text)).encode("utf-8", "surrogateescape") == raw.replace(b"\0", b"")


@given(st.text())
def test_whatever_a_guest_sends_as_text_can_be_shown(text: str) -> None:
    """No lone surrogate comes out that Python could not turn back into a byte."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return
    from_wire(text).encode("utf-8", "surrogateescape")


def test_text_with_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        to_wire("a\0b")
    assert from_wire("\x00ff") == "\udcff"
    assert from_wire("\x0041") == "\x0041"  # a plain byte needs no escape, and gets none


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 255))
def test_headers_make_the_round_trip(length: int, stream: int, kind: int) -> None:
    packed = protocol.HEADER.pack(length, stream, kind)
    assert len(packed) == 9
    assert protocol.HEADER.unpack(packed) == (length, stream, kind)

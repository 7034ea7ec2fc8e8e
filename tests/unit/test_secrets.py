"""Secrets: which values a sandbox gets, and that a masker leaves nothing of them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import aio, errors, secrets
from holdfast.config import Settings
from holdfast.engines.fake import FakeCall, FakeEngine
from holdfast.secrets import Masker

TOKEN = "sk-live/0123+456=789 ÿ"
"""with characters that encodings change"""


# --- what passes


def test_nothing_passes_but_what_is_named() -> None:
    environ = {"A": "1", "B": "2", "PATH": "/bin"}
    assert secrets.passed_environment(Settings(), environ) == {}
    assert secrets.passed_environment(Settings(pass_env=("A", "C")), environ) == {"A": "1"}


@pytest.mark.anyio
async def test_what_passes_reaches_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def look(call: FakeCall) -> None:
        seen.append(dict(call.env))

    monkeypatch.setenv("MINE", "value")
    monkeypatch.setenv("OTHER", "hidden")
    monkeypatch.setenv("HOLDFAST_PASS_ENV", "MINE")
    with FakeEngine() as fake:
        fake.on_code(look)
        await aio.run("1", engine="fake")
        await aio.run("1", engine="fake", env={"MINE": "the call's own"})
        monkeypatch.delenv("HOLDFAST_PASS_ENV")
        await aio.run("1", engine="fake")
    assert [env.get("MINE") for env in seen] == ["value", "the call's own", None]
    assert not any("OTHER" in env for env in seen)


def test_secrets_are_given_by_name() -> None:
    allowed = Settings(allowed_secrets=("TOKEN", "SHORT", "GONE"))
    environ = {"TOKEN": TOKEN, "SHORT": "abc", "KEY": "some value"}
    assert secrets.resolve(["TOKEN"], allowed, environ) == {"TOKEN": TOKEN}
    assert secrets.resolve([], Settings(), environ) == {}
    with pytest.raises(errors.PolicyError, match=r'"KEY".*HOLDFAST_ALLOWED_SECRETS'):
        secrets.resolve(["KEY"], allowed, environ)
    with pytest.raises(errors.ConfigError, match="GONE"):
        secrets.resolve(["GONE"], allowed, environ)
    with pytest.raises(errors.ConfigError, match="SHORT") as caught:
        secrets.resolve(["SHORT"], allowed, environ)
    assert "abc" not in str(caught.value)


# --- what is masked


@pytest.mark.parametrize("value", ["", "abc", "   \n ", "x" * (65 << 10)])
def test_a_value_that_cannot_be_masked_is_refused(value: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="TOKEN"):
        Masker({"TOKEN": value})


def test_a_masker_of_nothing() -> None:
    assert not Masker({})
    assert Masker({}).text("abc") == "abc"


@pytest.mark.parametrize(
    "form",
    [
        TOKEN,
        json.dumps(TOKEN)[1:-1],
        quote(TOKEN, safe=""),
        quote_plus(TOKEN),
        TOKEN.encode().hex(),
        base64.b64encode(TOKEN.encode()).decode(),
        base64.urlsafe_b64encode(TOKEN.encode()).decode(),
    ],
)
def test_common_forms_are_masked(form: str) -> None:
    masker = Masker({"TOKEN": TOKEN})
    told = masker.text(f"before {form} after")
    assert told.startswith("before ***") and told.endswith(" after")
    assert form not in told and len(told) <= len("before *** after") + 3, "at most base64's last bits are left"
    assert masker.text("before other after") == "before other after"


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_base64_of_a_text_around_the_secret(before: bytes, after: bytes) -> None:
    """`user:password` in a header: the secret stands somewhere inside."""
    encoded = base64.b64encode(before + TOKEN.encode() + after)
    told = Masker({"TOKEN": TOKEN}).data(encoded)
    assert b"***" in told
    assert len(told) <= len(encoded) - len(TOKEN.encode()) * 4 // 3 + 3 + 4


def test_lines_of_a_long_secret() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    told = Masker({"KEY": key}).text("  | MIIEvQIBADANBgkqhkiG9w0BAQ\n  | EFAASCBKcwggSjAgEAAoIB\n")
    assert told == "  | ***\n  | ***\n"


def test_values_of_any_shape() -> None:
    masker = Masker({"TOKEN": "hunter22"})
    value = {"a": ["hunter22", 1, None, b"x hunter22"], "hunter22": ("x",), "ok": True}
    assert masker.value(value) == {"a": ["***", 1, None, b"x ***"], "***": ("x",), "ok": True}


def test_secrets_that_overlap() -> None:
    masker = Masker({"A": "abcdef", "B": "defghi", "C": "abcdefghijkl"})
    assert masker.text("..abcdefghi..") == "..***.."
    assert masker.text("..abcdefghijkl..abcdef..") == "..***..***.."


SECRETS = st.lists(st.text("ab*#é", min_size=4, max_size=8), min_size=1, max_size=3)
PIECES = st.lists(st.text("ab*#é", max_size=12), max_size=8)


@given(SECRETS, PIECES)
@example(["aaaa"], ["a"] * 8)
@example(["***a"], ["***", "aa"])
def test_nothing_of_a_secret_is_left(values: list[str], pieces: list[str]) -> None:
    masker = Masker({f"S{number}": value for number, value in enumerate(values)})
    told = masker.text("".join(pieces))
    assert not [value for value in values if value in told]


@given(SECRETS, PIECES, st.lists(st.integers(0, 5)))
@example(["aaaa"], ["aaaaaaaaaaaaaaaa"], [1, 1, 1])
@example(["abab", "babab"], ["abababab"], [3])
def test_a_stream_says_the_same_however_it_is_cut(values: list[str], pieces: list[str], cuts: list[int]) -> None:
    masker = Masker({f"S{number}": value for number, value in enumerate(values)})
    whole = "".join(pieces).encode()
    stream, told, rest = masker.stream(), b"", whole
    for size in cuts:
        told, rest = told + stream.feed(rest[:size]), rest[size:]
    told += stream.feed(rest) + stream.end()
    assert told == masker.data(whole)


def test_a_stream_holds_back_no_more_than_a_secret() -> None:
    stream = Masker({"A": "aaaa" * 10}).stream()
    for _ in range(1000):
        stream.feed(b"a" * 39)
        assert len(stream._held) < 60
    assert stream.feed(b"b").endswith(b"b"), "what cannot be a secret is shown at once"

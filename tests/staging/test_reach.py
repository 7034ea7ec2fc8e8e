"""Which files a caller reaches, by which keys."""

from __future__ import annotations

import pytest

from holdfast.config import settings
from holdfast.errors import InvalidRequest, PolicyError
from holdfast.staging.reach import Reach, everything, own_prefix, reach


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Reach:
    monkeypatch.setenv("HOLDFAST_STAGING_READ", "shared/, models:public/")
    monkeypatch.setenv("HOLDFAST_STAGING_WRITE", "out/")
    return reach(settings(), "wf", "agent")


@pytest.mark.parametrize(
    ("key", "bucket", "found"),
    [
        ("a.csv", None, "workflows/wf/a.csv"),
        ("in/a b/ü", None, "workflows/wf/in/a b/ü"),
        ("workflows/wf/a.csv", None, "workflows/wf/a.csv"),
        ("/workflows/wf/a.csv", None, "workflows/wf/a.csv"),
        ("shared/a", None, "shared/a"),
        ("/shared/a", None, "shared/a"),
        ("sharedby/a", None, "workflows/wf/sharedby/a"),
        ("out/a", None, "workflows/wf/out/a"),
        ("public/a", "models", "public/a"),
        ("$O.x.>", None, "workflows/wf/$O.x.>"),
    ],
)
def test_what_may_be_read(mine: Reach, key: str, bucket: str | None, found: str) -> None:
    place = mine.readable(key, bucket)
    assert (place.bucket, place.key) == (bucket or "holdfast", found)
    assert mine.readable(mine.shown(place), bucket) == place


@pytest.mark.parametrize(
    ("key", "bucket"),
    [
        ("workflows/other/a", None),
        ("/workflows/other/a", None),
        ("workflows/w", None),
        ("/workflows/wf", None),
        ("agents/agent/a", None),
        ("private/x/a", None),
        ("/a", None),
        ("private/a", "models"),
        ("a", "models"),
        ("public/a", "elsewhere"),
    ],
)
def test_what_may_not(mine: Reach, key: str, bucket: str | None) -> None:
    with pytest.raises(PolicyError, match="HOLDFAST_STAGING_READ"):
        mine.readable(key, bucket)


def test_reading_and_writing_are_granted_apart(mine: Reach) -> None:
    assert mine.writable("out/a").key == "out/a"
    assert mine.writable("shared/a").key == "workflows/wf/shared/a"
    with pytest.raises(PolicyError, match="HOLDFAST_STAGING_WRITE"):
        mine.writable("/shared/a")
    with pytest.raises(PolicyError):
        mine.writable("public/a", "models")


@pytest.mark.parametrize("key", ["", "/", "a//b", "../a", "a/..", "./a", "a/", "a\nb", "a\0", "\ud800", "x" * 1025])
def test_what_is_no_key(mine: Reach, key: str) -> None:
    with pytest.raises(InvalidRequest):
        mine.readable(key)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a%2Fb"), ("..", "%2E%2E"), ("a", "A"), ("ü", "%C3%BC")])
def test_no_workflow_is_within_another(names: tuple[str, str]) -> None:
    prefixes = [own_prefix(settings(), name) for name in names]
    assert prefixes[0] != prefixes[1]
    assert all(prefix.count("/") == 2 and prefix.startswith("workflows/") for prefix in prefixes)
    first, second = (reach(settings(), name) for name in names)
    assert first.readable("x") != second.readable("x")
    with pytest.raises(PolicyError):
        first.readable(second.readable("x").key)


def test_without_a_workflow_it_is_the_agent_s_own_and_without_both_nobody_else_s() -> None:
    assert reach(settings(), None, "a").readable("x").key == "agents/a/x"
    assert reach(settings()).readable("x") != reach(settings()).readable("x")


def test_all_keys_are_only_meant_by_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_READ", "*")
    found = reach(settings(), "wf")
    assert found.readable("a").key == "workflows/wf/a"
    assert found.readable("/a").key == "a"
    assert found.readable("/workflows/other/a").key == "workflows/other/a"


def test_who_is_trusted_reaches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_PREFIX", "prod")
    config = settings()
    found = everything(config, own_prefix(config, "wf"))
    assert found.writable("a").key == "prod/workflows/wf/a"
    assert found.writable("/a").key == "a"
    assert found.writable("a", "other").bucket == "other"
    assert everything(config).readable("prod/workflows/x/a").key == "prod/workflows/x/a"

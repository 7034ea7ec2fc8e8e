"""Author asks, operator decides: cut where that is harmless, refused where it is not, and shown side by side."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast import aio, errors, frontmatter, policy
from holdfast.config import Limits, SandboxConfig, Settings
from holdfast.engines.fake import FakeEngine
from holdfast.policy import Request, Verdict, clamp, decide

DEFAULTS = Settings()


def row(request: Request, name: str, settings: Settings = DEFAULTS) -> policy.Row:
    (found,) = [row for row in decide(request, settings).rows if row.name == name]
    return found


# --- refused


@pytest.mark.parametrize(
    ("asked", "settings", "name", "variable"),
    [
        ({"network": True}, {}, "network", "STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"),
        ({"image": "evil:1"}, {}, "image", "STATION_SANDBOX_ALLOWED_IMAGES"),
        ({"image": "python:3.12"}, {}, "image", "STATION_SANDBOX_ALLOWED_IMAGES"),
        ({"runtime": "node"}, {"allowed_runtimes": ("python",)}, "runtime", "HOLDFAST_ALLOWED_RUNTIMES"),
        ({"engine": "docker"}, {"allowed_engines": ("local",)}, "engine", "HOLDFAST_ALLOWED_ENGINES"),
        ({}, {"allowed_engines": ("local",), "engine": "docker"}, "engine", "HOLDFAST_ALLOWED_ENGINES"),
        ({"pip_packages": ["evil"]}, {"allowed_packages": ("pandas",)}, "pip_packages", "HOLDFAST_ALLOWED_PACKAGES"),
        ({"npm_packages": ["pandas"]}, {"allowed_packages": ("pip:*",)}, "npm_packages", "HOLDFAST_ALLOWED_PACKAGES"),
        ({"secrets": ["TOKEN"]}, {}, "secrets", "HOLDFAST_ALLOWED_SECRETS"),
        ({"mode": "code"}, {"code_mode_enabled": False}, "mode", "STATION_SANDBOX_CODE_MODE_ENABLED"),
        ({}, {"enabled": False}, "sandbox", "STATION_SANDBOX_ENABLED"),
    ],
    ids=str,
)
def test_what_would_harm_is_refused(asked: dict[str, Any], settings: dict[str, Any], name: str, variable: str) -> None:
    request, made = Request(**asked), Settings(**settings)
    with pytest.raises(errors.PolicyError, match=variable) as caught:
        clamp(request, made)
    assert isinstance(caught.value, errors.ImageNotAllowed) == (name == "image")
    found = row(request, name, made)
    assert (found.verdict, found.effective, found.variable) == (Verdict.REFUSED, None, variable)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({"network": True}, {"allow_network": True}),
        ({"image": "docker.io/library/python:3.11-slim"}, {}),
        ({"runtime": "node"}, {}),
        ({"engine": "docker"}, {"allowed_engines": ("local", "docker")}),
        ({"engine": "auto"}, {"allowed_engines": ("local",)}),
        ({"pip_packages": ["Pandas==2.2.3", "types_requests"]}, {"allowed_packages": ("pandas", "types-*")}),
        ({"npm_packages": ["@scope/x@1.2"]}, {"allowed_packages": ("npm:@scope/*",)}),
        ({"pip_packages": ["anything"], "npm_packages": ["at-all"]}, {}),
        ({"secrets": ["TOKEN"]}, {"allowed_secrets": ("TOKEN",)}),
        ({"mode": "code"}, {}),
    ],
    ids=str,
)
def test_what_is_allowed_is_granted(asked: dict[str, Any], settings: dict[str, Any]) -> None:
    assert not clamp(Request(**asked), Settings(**settings)).refusals


def test_no_package_is_allowed_by_a_trick() -> None:
    only = Settings(allowed_packages=("pandas",))
    for trick in ("pandas @ https://evil/x.whl", "--index-url=https://evil", "pandas; evil", "pandas-evil", "./pandas"):
        with pytest.raises(errors.PolicyError):
            clamp(Request(pip_packages=[trick]), only)


def test_all_refusals_are_told_at_once() -> None:
    with pytest.raises(errors.PolicyError) as caught:
        clamp(Request(network=True, image="evil:1", secrets=["TOKEN"]), DEFAULTS)
    told = str(caught.value).splitlines()
    assert len(told) == 3
    assert "the image evil:1 is not allowed here; allowed are python:3.11-slim" in told[1]


# --- cut


@pytest.mark.parametrize(
    ("limit", "setting"),
    [
        ("memory_mb", "max_memory_mb"),
        ("cpu_millicores", "max_cpu_millicores"),
        ("processes", "max_processes"),
        ("workspace_mb", "max_workspace_mb"),
        ("max_files", "max_files"),
        ("max_file_size_bytes", "max_file_size_bytes"),
        ("open_files", "max_open_files"),
    ],
)
def test_limits_are_cut(limit: str, setting: str) -> None:
    settings = Settings.model_validate({setting: 100})
    for asked, given, verdict in ((5000, 100, Verdict.CLAMPED), (100, 100, Verdict.GRANTED), (7, 7, Verdict.GRANTED)):
        request = Request(limits=Limits(**{limit: asked}))
        assert getattr(clamp(request, settings).limits, limit) == given
        found = row(request, limit, settings)
        assert (found.asked, found.allowed, found.effective, found.verdict) == (asked, 100, given, verdict)
    usual = row(Request(), limit, settings)
    assert (usual.asked, usual.effective, usual.verdict) == (None, 100, Verdict.CLAMPED), "the default is cut too"


def test_no_limit_yields_to_what_the_operator_has_set_only() -> None:
    none = Limits(memory_mb=None)
    assert clamp(Request(limits=none), DEFAULTS).limits.memory_mb is None
    assert clamp(Request(limits=none), Settings(max_memory_mb=8192)).limits.memory_mb == 8192
    assert clamp(Request(limits=Limits(memory_mb=10**6)), Settings(max_memory_mb=None)).limits.memory_mb == 10**6
    assert clamp(Request(limits=Limits(memory_mb=10**6)), DEFAULTS).limits.memory_mb == 8192


def test_times_and_bytes_are_cut() -> None:
    made = clamp(
        Request(
            mode="code", timeout=1e6, max_stdout_bytes=10**9, max_stderr_bytes=5, idle_timeout=1e6, max_lifetime=1e6
        ),
        DEFAULTS,
    )
    assert (made.timeout, made.max_stdout_bytes, made.max_stderr_bytes) == (3600, 200_000, 5)
    assert (made.idle_timeout, made.max_lifetime) == (1800, 14400)
    assert set(made.clamped) == {"timeout_seconds", "max_stdout_bytes", "idle_timeout", "max_lifetime"}
    assert made.clamped["timeout_seconds"] == {"asked": 1e6, "allowed": 3600, "effective": 3600, "verdict": "clamped"}


def test_the_default_timeout_is_within_the_maximum() -> None:
    assert policy.timeout(None, DEFAULTS) == 120
    assert policy.timeout(None, Settings(max_timeout=60)) == 60
    assert policy.timeout(5, DEFAULTS) == 5
    assert policy.timeout(math.inf, DEFAULTS) == math.inf, "left for those who refuse it"


# --- from a prompt file


def test_a_prompt_file_side_by_side() -> None:
    text = "---\nsandbox: {mode: code, image: 'evil:1', timeout_seconds: 9999, limits: {memory_mb: 99999}}\n---\n"
    config = frontmatter.parse(text).sandbox
    assert config is not None
    told = decide(Request.of(config), DEFAULTS).as_tool()
    assert told["image"]["verdict"] == "refused"
    assert told["timeout_seconds"] == {"asked": 9999, "allowed": 3600, "effective": 3600, "verdict": "clamped"}
    assert told["memory_mb"] == {"asked": 99999, "allowed": 8192, "effective": 8192, "verdict": "clamped"}
    assert told["workspace_mb"] == {"asked": None, "allowed": 8192, "effective": 512, "verdict": "default"}
    assert {"mode", "network", "runtime", "engine", "profile", "pip_packages", "secrets"} <= set(told)


def test_what_is_given_is_granted_when_asked_again() -> None:
    first = clamp(Request.of(SandboxConfig(timeout_seconds=1e6, limits={"memory_mb": 10**6})), DEFAULTS)  # type: ignore[arg-type]
    again = clamp(Request(timeout=first.timeout, limits=first.limits), DEFAULTS)
    assert (again.timeout, again.limits, again.clamped) == (first.timeout, first.limits, {})


# --- where it holds


@pytest.mark.anyio
async def test_a_run_shows_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_TIMEOUT_SECONDS", "5")
    monkeypatch.setenv("HOLDFAST_MAX_MEMORY_MB", "100")
    with FakeEngine() as fake:
        fake.on_code(lambda call: None)
        result = await aio.run("1", engine="fake", timeout=60)
        assert result.limits["timeout_seconds"] == 5
        assert result.limits["memory_mb"] == 100
        assert result.limits["clamped"]["timeout_seconds"]["asked"] == 60
        assert "clamped" not in (await aio.run("1", engine="fake", timeout=4)).limits


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STATION_SANDBOX_ENABLED", "false"),
        ("HOLDFAST_ALLOWED_RUNTIMES", "bash"),
        ("HOLDFAST_ALLOWED_ENGINES", "local"),
    ],
)
async def test_runs_and_sessions_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    with FakeEngine() as fake:
        fake.on_code(lambda call: None)
        assert (await aio.run("1", engine="fake")).ok
        async with aio.open_session(engine="fake") as box:
            assert box.created
        monkeypatch.setenv(variable, value)
        with pytest.raises(errors.PolicyError, match=variable):
            await aio.run("1", engine="fake")
        with pytest.raises(errors.PolicyError, match=variable):
            async with aio.open_session(engine="fake"):
                pass


@pytest.mark.anyio
async def test_sessions_can_be_switched_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine() as fake:
        fake.on_code(lambda call: None)
        async with aio.open_session(engine="fake", workflow="w") as box:
            monkeypatch.setenv("STATION_SANDBOX_CODE_MODE_ENABLED", "false")
            assert (await aio.run("1", engine="fake")).ok
            with pytest.raises(errors.PolicyError, match="STATION_SANDBOX_CODE_MODE_ENABLED"):
                async with aio.open_session(engine="fake", workflow="other"):
                    pass
            async with aio.open_session(engine="fake", workflow="w", create=False) as same:
                assert same.key == box.key, "one that is there can be found, and closed"
                await same.close()


@pytest.mark.anyio
async def test_auto_takes_allowed_engines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ALLOWED_ENGINES", "fake")
    monkeypatch.delenv("HOLDFAST_ENGINE", raising=False)
    with pytest.raises(errors.EngineUnavailable, match="HOLDFAST_ALLOWED_ENGINES"):
        await aio.run("1")

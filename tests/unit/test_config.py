"""Settings: every variable by its name, the operator's file, where each value comes from, all mistakes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast.sources
from holdfast import config
from holdfast.config import Settings, settings, sources
from holdfast.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine's own file is none of our business."""
    monkeypatch.setattr(holdfast.sources, "SYSTEM_FILE", str(tmp_path / "system.toml"))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without any setting, and without a file."""
    for env in config.variables().values():
        for name in env.names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HOLDFAST_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return monkeypatch


def mistakes(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(environ)
    return [str(one) for one in caught.value.mistakes]


# --- the variables of the seeds, and ours


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("STATION_SANDBOX_ENABLED", "false", "enabled", False),
        ("STATION_SANDBOX_CODE_MODE_ENABLED", "false", "code_mode_enabled", False),
        ("STATION_SANDBOX_ENGINE_MODE", "docker_socket", "engine_mode", "docker_socket"),
        ("STATION_SANDBOX_ENGINE_MODE", "sidecar", "engine_mode", "sidecar"),
        ("STATION_SANDBOX_ENGINE_MODE", "remote", "engine_mode", "remote"),
        ("STATION_SANDBOX_ALLOWED_IMAGES", "a:1, b/c:2,", "allowed_images", ("a:1", "b/c:2")),
        ("STATION_SANDBOX_ALLOWED_IMAGES", "none", "allowed_images", ()),
        ("STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS", "7", "default_timeout", 7),
        ("STATION_SANDBOX_MAX_STDOUT_BYTES", "1000", "max_stdout_bytes", 1000),
        ("STATION_SANDBOX_MAX_STDERR_BYTES", "0", "max_stderr_bytes", 0),
        ("STATION_SANDBOX_MAX_ARTIFACT_BYTES", "5", "max_artifact_bytes", 5),
        ("STATION_SANDBOX_MAX_ARTIFACTS_COUNT", "3", "max_artifacts_count", 3),
        ("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT", "true", "allow_network", True),
        ("SANDBOX_SESSION_IDLE_TIMEOUT", "30m", "idle_timeout", 1800),
        ("SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS", "60", "idle_timeout", 60),
        ("SANDBOX_SESSION_MAX_LIFETIME", "4h", "max_lifetime", 14400),
        ("SANDBOX_SESSION_MAX_LIFETIME_SECONDS", "1.5", "max_lifetime", 1.5),
        ("SANDBOX_SESSION_KEEP_FOR_SECONDS", "0", "keep_for", 0),
        ("DOCKER_HOST", "unix:///var/run/docker.sock", "docker_host", "unix:///var/run/docker.sock"),
        ("DAGGER_HOST", "tcp://dagger-engine:8080", "dagger_host", "tcp://dagger-engine:8080"),
        ("HOLDFAST_MAX_TIMEOUT_SECONDS", "1h30m", "max_timeout", 5400),
        ("HOLDFAST_MAX_MEMORY_MB", "none", "max_memory_mb", None),
        ("HOLDFAST_MAX_MEMORY_MB", "256", "max_memory_mb", 256),
        ("HOLDFAST_ALLOWED_ENGINES", "local,docker", "allowed_engines", ("local", "docker")),
        ("HOLDFAST_ALLOWED_RUNTIMES", "bash", "allowed_runtimes", ("bash",)),
        ("HOLDFAST_ALLOWED_SECRETS", "API_TOKEN", "allowed_secrets", ("API_TOKEN",)),
        ("HOLDFAST_PROFILE", "strict", "profile", "strict"),
        ("HOLDFAST_CODE_WORKDIR", "/home/agent", "code_workdir", "/home/agent"),
    ],
)
def test_a_variable_gives_its_setting(variable: str, text: str, name: str, value: Any) -> None:
    before = sources({})
    found = sources({variable: text})
    assert getattr(found.settings, name) == value
    assert str(found.origin(name)) == variable
    assert str(before.origin(name)) == "default"
    assert getattr(before.settings, name) == Settings.model_fields[name].default
    same = {field for field in Settings.model_fields if field != name}
    assert all(getattr(found.settings, field) == getattr(before.settings, field) for field in same)


def test_defaults_of_the_seeds() -> None:
    found = settings({})
    assert (found.default_timeout, found.max_stdout_bytes, found.max_stderr_bytes) == (120, 200_000, 200_000)
    assert (found.max_artifact_bytes, found.allow_network) == (10_000_000, False)
    assert found.allowed_images == ("python:3.11-slim", "node:20-slim", "ubuntu:22.04")
    assert (found.idle_timeout, found.max_lifetime) == (30 * 60, 4 * 3600)
    assert (found.compute_workdir, found.code_workdir) == ("/work", "/workspace")


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert settings({name: "" for env in config.variables().values() for name in env.names}) == settings({})


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"STATION_SANDBOX_ENABLED": "maybe"}, 'STATION_SANDBOX_ENABLED: must be true or false, not the text "maybe"'),
        ({"STATION_SANDBOX_MAX_STDOUT_BYTES": "1e6"}, "must be a whole number"),
        ({"STATION_SANDBOX_MAX_STDOUT_BYTES": "-1"}, "must be at least 0, not -1"),
        ({"STATION_SANDBOX_MAX_STDOUT_BYTES": "9" * 30}, "must be at most 67108864"),
        ({"STATION_SANDBOX_MAX_STDOUT_BYTES": "9" * 5000}, "must be a whole number"),
        ({"STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS": "0"}, "must be more than 0"),
        ({"STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS": "nan"}, "a time such as 90s, 30m or 4h"),
        ({"STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS": "inf"}, "a time such as 90s, 30m or 4h"),
        ({"SANDBOX_SESSION_IDLE_TIMEOUT": "30 minutes"}, "a time such as 90s, 30m or 4h"),
        ({"SANDBOX_SESSION_IDLE_TIMEOUT": "1m", "SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS": "61"}, "keep one of them"),
        ({"STATION_SANDBOX_ENGINE_MODE": "socket"}, "did you mean docker_socket?"),
        ({"STATION_SANDBOX_ALLOWED_IMAGES": "python:3.11-slim,NOT AN IMAGE"}, "is not the name of an image"),
        ({"HOLDFAST_ENGINE": "dockr"}, 'HOLDFAST_ENGINE: there is no engine "dockr"; did you mean docker?'),
        ({"HOLDFAST_ALLOWED_ENGINES": "local,dockr"}, "did you mean docker?"),
        ({"HOLDFAST_ALLOWED_RUNTIMES": "pyhton"}, "did you mean python?"),
        ({"HOLDFAST_ALLOWED_SECRETS": "A B"}, "not the name of an environment variable"),
        ({"HOLDFAST_CODE_WORKDIR": "work"}, "write an absolute path"),
        ({"HOLDFAST_CODE_WORKDIR": "/work/../etc"}, "write an absolute path"),
        ({"HOLDFAST_CODE_WORKDIR": "/etc"}, "belongs to the sandbox"),
        ({"HOLDFAST_COMPUTE_WORKDIR": "/home"}, "belongs to the sandbox"),
        ({"HOLDFAST_CONFIG": "/nonexistent.toml"}, "HOLDFAST_CONFIG: there is no file /nonexistent.toml"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_variable_is_named_with_what_it_may_hold(environ: dict[str, str], told: str) -> None:
    (mistake,) = mistakes(environ)
    assert told in mistake
    assert mistake.split(":")[0] in environ


def test_twins_of_the_wrong_ones() -> None:
    both = {"DAGGER_HOST": "tcp://ours:1", "_EXPERIMENTAL_DAGGER_RUNNER_HOST": "tcp://theirs:1"}
    assert settings(both).dagger_host == "tcp://ours:1"
    assert settings({"_EXPERIMENTAL_DAGGER_RUNNER_HOST": "tcp://theirs:1"}).dagger_host == "tcp://theirs:1"
    same = {"SANDBOX_SESSION_IDLE_TIMEOUT": "61", "SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS": "61"}
    assert settings(same).idle_timeout == 61


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('max_memory = 5\nprofile = "strictt"\nmax_files = "many"\n')
    told = mistakes({"HOLDFAST_CONFIG": str(file), "STATION_SANDBOX_ENABLED": "x", "HOLDFAST_MAX_PROCESSES": "0"})
    assert sorted(told) == sorted(
        [
            f"{file}:1: max_memory: there is no such setting; did you mean max_memory_mb?",
            f'{file}:2: profile: must be standard or strict, not the text "strictt"; did you mean strict?',
            f'{file}:3: max_files: must be a whole number, not the text "many"',
            'STATION_SANDBOX_ENABLED: must be true or false, not the text "x"',
            "HOLDFAST_MAX_PROCESSES: must be more than 0, not 0",
        ]
    )


def test_a_variable_that_only_looks_like_ours_is_noted() -> None:
    environ = {"STATION_SANDBOX_ALOWED_IMAGES": "x", "STATION_OTHER": "1", "HOLDFAST_STATE_DIR": "/x"}
    (note,) = sources(environ).notes
    assert "STATION_SANDBOX_ALOWED_IMAGES" in note and "did you mean STATION_SANDBOX_ALLOWED_IMAGES?" in note


# --- the file


def test_the_file_gives_what_the_environment_does_not(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        "# ours\n"
        'allowed_images = ["a:1"]\n'
        "allow_network = true\n"
        'idle_timeout = "10m"\n'
        "max_lifetime = 60\n"
        'max_memory_mb = "none"\n'
    )
    found = sources({"HOLDFAST_CONFIG": str(file), "SANDBOX_SESSION_MAX_LIFETIME": "5"})
    told = found.settings
    assert (told.allowed_images, told.allow_network, told.idle_timeout) == (("a:1",), True, 600)
    assert (told.max_lifetime, told.max_memory_mb) == (5, None)
    assert str(found.origin("idle_timeout")) == f"{file}:4"
    assert str(found.origin("max_lifetime")) == "SANDBOX_SESSION_MAX_LIFETIME"
    assert found.file == str(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("allow_network = 'yes'", 'must be true or false, not the text "yes"'),
        ("max_files = '5'", "write it without quotes: 5"),
        ("max_files = 1.5", "must be a whole number"),
        ("allowed_images = 'a:1'", "must be a list"),
        ("allowed_images = [1]", "must be text"),
        ("default_timeout = inf", "must be"),
        ("[limits]\nmemory_mb = 5", "there is no such setting"),
        ("max_files = ", "is not TOML"),
        ("max_files = 1\nmax_files = 2", "is not TOML"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    (mistake,) = mistakes({"HOLDFAST_CONFIG": str(file)})
    assert mistake.startswith(f"{file}:")
    assert told in mistake


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff")
    assert "not UTF-8" in mistakes({"HOLDFAST_CONFIG": str(tmp_path / "x")})[0]
    assert "Is a directory" in mistakes({"HOLDFAST_CONFIG": str(tmp_path)})[0]


def test_which_file_is_taken(tmp_path: Path) -> None:
    home = tmp_path / ".config/holdfast/config.toml"
    xdg = tmp_path / "xdg/holdfast/config.toml"
    named = tmp_path / "named.toml"
    for path, number in ((home, 1), (xdg, 2), (named, 3)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"max_files = {number}")
    (tmp_path / "system.toml").write_text("max_files = 4")
    assert settings({}).max_files == 4
    environ = {"HOME": str(tmp_path)}
    assert settings(environ).max_files == 1, "the first that is there, and nothing of the others"
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert settings(environ).max_files == 2
    environ["HOLDFAST_CONFIG"] = str(named)
    assert settings(environ).max_files == 3


# --- read when asked


def test_settings_follow_the_environment_and_the_file(own: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings().max_files == 1_000_000
    assert settings() is settings(), "and are not read again while nothing changes"
    own.setenv("HOLDFAST_MAX_FILES", "5")
    assert settings().max_files == 5
    own.delenv("HOLDFAST_MAX_FILES")
    file = tmp_path / "xdg/holdfast/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("max_files = 7")
    assert settings().max_files == 7
    file.write_text("max_files = 18")
    assert settings().max_files == 18
    os.environb[b"HOLDFAST_MAX_FILES"] = b"9"
    assert settings().max_files == 9
    del os.environb[b"HOLDFAST_MAX_FILES"]
    file.unlink()
    assert settings().max_files == 1_000_000


def test_a_mistake_is_told_again(own: pytest.MonkeyPatch) -> None:
    own.setenv("HOLDFAST_MAX_FILES", "x")
    for _ in range(2):
        with pytest.raises(ConfigError, match="HOLDFAST_MAX_FILES"):
            settings()
    own.setenv("HOLDFAST_MAX_FILES", "3")
    assert settings().max_files == 3


def test_nothing_is_read_at_import() -> None:
    code = "import holdfast, holdfast.config, holdfast.aio, holdfast.policy, holdfast.frontmatter"
    environ = {**os.environ, "HOLDFAST_MAX_FILES": "wrong", "HOLDFAST_CONFIG": "/nonexistent"}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=100)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; holdfast.config.settings()"], env=environ, check=False, capture_output=True
    )
    assert b"HOLDFAST_MAX_FILES" in done.stderr and b"HOLDFAST_CONFIG" in done.stderr


# --- what is documented


def test_the_documents_are_as_generated() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_setting_is_in_the_table() -> None:
    document = (ROOT / "docs/configuration.md").read_text()
    for name, env in config.variables().items():
        for variable in env.names:
            assert f"`{variable}`" in document
        (line,) = [line for line in document.splitlines() if line.startswith(f"| `{name}` | `{env.name}`")]
        assert len(line.split(" | ")[-1]) > 10, "it says what it is"


def test_the_schema_drifts_with_the_model(tmp_path: Path) -> None:
    """The check can fail."""
    text = (ROOT / "docs/generate.py").read_text().replace("Only the key `sandbox` is Holdfast's", "Other words")
    script = tmp_path / "docs/generate.py"
    script.parent.mkdir()
    script.write_text(text.replace("Path(__file__).parents[1]", f"Path({str(ROOT)!r})"))
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1
    assert "src/holdfast/schema/frontmatter.json" in done.stderr

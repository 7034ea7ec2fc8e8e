"""`holdfast config`, and `holdfast doctor FILE`: what an operator and an author see."""

from __future__ import annotations

import json

import pytest

from .conftest import Cli

pytestmark = pytest.mark.engines


@pytest.fixture
def alone(cli: Cli) -> Cli:
    """Without a file of this machine's user."""
    cli.env["XDG_CONFIG_HOME"] = str(cli.folder / "xdg")
    return cli


def agent(cli: Cli, sandbox: str) -> str:
    (cli.folder / "agent.prompt").write_text(f"---\nmodel: x\n{sandbox}\n---\nYou compute.\n")
    return "agent.prompt"


def test_settings_are_shown_with_their_origin(alone: Cli) -> None:
    alone.env["HOLDFAST_MAX_MEMORY_MB"] = "1024"
    file = alone.folder / "xdg/holdfast/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nmax_files = 5000\n")
    told = alone.json("config", "--json")
    assert told["file"] == str(file)
    assert told["settings"]["max_memory_mb"] == {
        "value": 1024,
        "origin": "HOLDFAST_MAX_MEMORY_MB",
        "default": 8192,
        "variable": "HOLDFAST_MAX_MEMORY_MB",
    }
    assert told["settings"]["max_files"]["origin"] == f"{file}:2"
    assert told["settings"]["profile"]["origin"] == "default"
    shown = alone.ok("config", "--changed").splitlines()
    assert [line.split()[:3] for line in shown if line.startswith("max_")] == [
        ["max_memory_mb", "1024", "HOLDFAST_MAX_MEMORY_MB"],
        ["max_files", "5000", f"{file}:2"],
    ]
    assert not [line for line in shown if line.startswith("profile")]
    assert [line for line in alone.ok("config").splitlines() if line.startswith("profile")]


def test_wrong_settings_stop_every_command_with_all_mistakes(alone: Cli) -> None:
    alone.env.update(HOLDFAST_MAX_FILES="many", HOLDFAST_PROFILE="strickt")
    for words in (["config"], ["run", "-c", "print(1)"], ["doctor", agent(alone, "sandbox: python")]):
        done = alone(*words)
        assert (done.returncode, done.stdout) == (125, "")
        assert 'HOLDFAST_MAX_FILES: must be a whole number, not the text "many"' in done.stderr
        assert "did you mean strict?" in done.stderr
    told = alone.json("config", "--json", status=125)
    assert told["error_code"] == "config_error"
    assert {one["key"] for one in told["mistakes"]} == {"HOLDFAST_MAX_FILES", "HOLDFAST_PROFILE"}
    del alone.env["HOLDFAST_MAX_FILES"], alone.env["HOLDFAST_PROFILE"]
    assert alone.ok("run", "-c", "print(1)") == "1\n"


def test_a_variable_with_a_wrong_name_is_noted(alone: Cli) -> None:
    alone.env["STATION_SANDBOX_ALLOWED_IMAGE"] = "x"
    done = alone("config", "--changed")
    assert done.returncode == 0
    assert "did you mean STATION_SANDBOX_ALLOWED_IMAGES?" in done.stderr


def test_the_schema_is_printed(alone: Cli) -> None:
    schema = json.loads(alone.ok("config", "--schema"))
    assert "sandbox" in schema["properties"]


def test_doctor_shows_asked_allowed_and_effective(alone: Cli) -> None:
    file = agent(alone, "sandbox: {runtime: python, timeout_seconds: 9999, limits: {memory_mb: 64}}")
    told = alone.json("doctor", file, "--json")
    assert (told["ok"], told["engine"], told["refusals"]) == (True, "local", [])
    assert told["policy"]["timeout_seconds"] == {
        "asked": 9999,
        "allowed": 3600,
        "effective": 3600,
        "verdict": "clamped",
    }
    assert told["policy"]["memory_mb"]["verdict"] == "granted"
    lines = alone.ok("doctor", file).splitlines()
    assert ["timeout_seconds", "9999", "3600", "3600", "clamped"] in [line.split() for line in lines]
    assert ["engine", "local"] in [line.split() for line in lines]


def test_doctor_says_what_is_refused_and_who_can_change_it(alone: Cli) -> None:
    file = agent(alone, "sandbox: {mode: code, allow_network: true}")
    done = alone("doctor", file)
    assert done.returncode == 1
    assert ["network", "yes", "no", "-", "refused"] in [line.split() for line in done.stdout.splitlines()]
    assert "STATION_SANDBOX_ALLOW_NETWORK_DEFAULT=true" in done.stderr
    alone.env["STATION_SANDBOX_ALLOW_NETWORK_DEFAULT"] = "true"
    told = alone.json("doctor", file, "--json", status=1)
    assert (told["refusals"], told["engine"]) == ([], None), "and that no engine here has network"
    assert "network_on" in told["reason"]


def test_doctor_says_that_a_secret_is_not_set(alone: Cli) -> None:
    file = agent(alone, "sandbox: {runtime: python, secrets: [API_TOKEN]}")
    alone.env["HOLDFAST_ALLOWED_SECRETS"] = "API_TOKEN"
    told = alone.json("doctor", file, "--json", status=1)
    assert (told["engine"], "API_TOKEN" in told["reason"], "not set" in told["reason"]) == (None, True, True)
    alone.env["API_TOKEN"] = "hunter2-hunter2"
    shown = alone.ok("doctor", file)
    assert "API_TOKEN" in shown and "hunter2" not in shown


def test_doctor_of_a_file_with_mistakes(alone: Cli) -> None:
    done = alone("doctor", agent(alone, "sandbox:\n  timeout_second: 5\n  allow_network: yes"))
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.splitlines() == [
        "holdfast: agent.prompt:4:3: sandbox.timeout_second: there is no such key; did you mean timeout_seconds?",
        "holdfast: agent.prompt:5:18: sandbox.allow_network: yes is true or false in some versions of YAML and text in "
        "others; write true or false",
    ]
    told = alone.json("doctor", "agent.prompt", "--json", status=125)
    assert told["mistakes"][0]["line"] == 4
    assert (
        alone("doctor", "missing.prompt").stderr
        == "holdfast: missing.prompt: cannot be read: No such file or directory\n"
    )


def test_doctor_of_a_file_without_a_sandbox(alone: Cli) -> None:
    told = alone.json("doctor", agent(alone, "sanbox: python"), "--json")
    assert (told["ok"], told["sandbox"]) == (True, None)
    assert "did you mean that?" in told["notes"][0]


def test_a_timeout_that_was_cut_is_told_as_it_was(alone: Cli) -> None:
    alone.env["HOLDFAST_MAX_TIMEOUT_SECONDS"] = "1"
    done = alone("run", "-v", "-t", "60", "-c", "while True: pass")
    assert done.returncode == 124
    assert "killed after 1 s" in done.stderr
    assert "timeout_seconds is 1.0, and not 60.0: the operator allows no more" in done.stderr
    alone.ok("open", "--workflow", "demo")
    done = alone("exec", "--workflow", "demo", "-t", "60", "-c", "while :; do :; done")
    assert done.returncode == 124
    assert "killed after 1 s" in done.stderr
    assert alone("exec", "--workflow", "demo", "-t", "60", "-c", "true").returncode == 0


def test_working_directories_are_settings(alone: Cli) -> None:
    assert alone.ok("run", "-r", "bash", "-c", "pwd") == "/work\n"
    alone.env.update(HOLDFAST_COMPUTE_WORKDIR="/deep/job", HOLDFAST_CODE_WORKDIR="/home/agent")
    assert alone.ok("run", "-r", "bash", "-c", "pwd; touch x; ls") == "/deep/job\nmain.sh\nx\n"
    alone.ok("open", "--workflow", "demo")
    assert alone.ok("exec", "--workflow", "demo", "-c", "pwd; touch x; ls") == "/home/agent\nx\n"

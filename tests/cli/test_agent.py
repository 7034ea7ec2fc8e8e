"""`holdfast tools` and `holdfast agent`: an agent's tools from the shell, as a model would see and call them."""

from __future__ import annotations

import json

import pytest

from .conftest import Cli

pytestmark = pytest.mark.engines


@pytest.fixture
def agents(cli: Cli) -> Cli:
    cli.env["XDG_CONFIG_HOME"] = str(cli.folder / "xdg")
    (cli.folder / "agent.prompt").write_text("---\nsandbox: python\n---\nYou compute.\n")
    (cli.folder / "coder.prompt").write_text("---\nsandbox:\n  mode: code\n---\nYou code.\n")
    (cli.folder / "typo.prompt").write_text("---\nsanbox: python\n---\nYou guess.\n")
    return cli


def test_tools_are_shown_as_a_model_sees_them(agents: Cli) -> None:
    (tool,) = json.loads(agents.ok("tools", "agent.prompt", "--json"))
    assert (tool["name"], tool["input_schema"]["required"]) == ("sandbox_run", ["code"])
    assert "engine local" in tool["description"] and "512 MB memory" in tool["description"]
    assert tool["output_schema"]["properties"]["exit_code"]
    shown = agents.ok("tools", "coder.prompt")
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("tool ")] == [
        *("sandbox_open", "sandbox_exec", "sandbox_exec_read", "sandbox_exec_wait", "sandbox_fs_write"),
        *("sandbox_fs_read", "sandbox_fs_list", "sandbox_fs_delete", "sandbox_close"),
    ]


def test_a_call_prints_the_result_and_says_by_its_status_how_it_went(agents: Cli) -> None:
    told = agents.json("agent", "agent.prompt", "--input", '{"code": "print(6 * 7)"}')
    assert (told["ok"], told["stdout"], told["engine"]) == (True, "42\n", "local")
    failed = agents.json("agent", "agent.prompt", "--input", '{"code": "1/0"}', status=1)
    assert (failed["ok"], failed["exit_code"]) == (False, 1)
    assert "ZeroDivisionError" in failed["stderr"]
    refused = agents.json("agent", "agent.prompt", "--input", '{"cod": "1"}', status=1)
    assert "did you mean code?" in refused["error"]


def test_calls_of_one_workflow_share_a_session(agents: Cli) -> None:
    wrote = '{"path": "a", "contents": "x"}'
    agents.json("agent", "coder.prompt", "--workflow", "wf", "--tool", "sandbox_fs_write", "--input", wrote)
    read = agents.json(
        "agent", "coder.prompt", "--workflow", "wf", "--tool", "sandbox_fs_read", "--input", '{"path": "a"}'
    )
    assert read["contents"] == "x"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["agent.prompt", "--input", "print(1)"], 125, '--input is no JSON, such as \'{"code"'),
        (["agent.prompt", "--input", "[1]"], 125, "--input is an object"),
        (["agent.prompt", "--tool", "sandbox_exec"], 1, "there are: sandbox_run"),
        (["coder.prompt"], 125, "say which: --tool sandbox_open"),
        (["missing.prompt"], 125, "missing.prompt: cannot be read"),
        (["typo.prompt"], 125, "has no sandbox in its frontmatter"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_with_what_to_do(agents: Cli, words: list[str], status: int, said: str) -> None:
    told = agents.json("agent", *words, status=status)
    assert told["ok"] is False
    assert said in told["error"]


def test_a_key_that_was_mistyped_is_noticed(agents: Cli) -> None:
    for command in ("tools", "agent", "doctor"):
        assert "there is a key sanbox, and none named sandbox" in agents(command, "typo.prompt").stderr

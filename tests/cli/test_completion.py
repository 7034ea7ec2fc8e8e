"""Completion as a shell does it: bash itself is asked what it would offer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import aio
from holdfast.cli import _complete
from holdfast.config import SandboxConfig
from holdfast.engines import ENGINES

_ASK = """
set -u
source <(holdfast completion bash) 2>/dev/null
COMP_WORDS=({words}) COMP_CWORD={last}
COMPREPLY=()
compopt() {{ echo "the shell's own files"; }}  # there is no line being typed
$(complete -p holdfast | sed -E 's/.* -F ([^ ]+) .*/\\1/') holdfast  # as bash calls it
for word in "${{COMPREPLY[@]}}"; do echo "$word"; done
"""


def offered(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    text = _ASK.format(words=" ".join(f"'{word}'" for word in ("holdfast", *words)), last=len(words))
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_bash_offers_commands_options_and_values(tmp_path: Path) -> None:
    assert offered(tmp_path, "do") == ["doctor"]
    assert set(offered(tmp_path, "")) >= {"run", "open", "exec", "agent", "completion"}
    assert offered(tmp_path, "run", "--runt") == ["--runtime"]
    assert offered(tmp_path, "run", "--engine", "d") == ["docker", "dagger"]
    assert offered(tmp_path, "open", "-r", "") == ["python", "node", "bash"]
    assert offered(tmp_path, "completion", "z") == ["zsh"]
    assert offered(tmp_path, "agent", "a.prompt", "--tool", "sandbox_fs_r") == ["sandbox_fs_read"]


def test_bash_offers_prompt_files(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    for name in ("coder.prompt", "notes.md", "main.py", "agents/tester.prompt"):
        (tmp_path / name).touch()
    for command in ("agent", "tools", "doctor", "mcp"):
        assert offered(tmp_path, command, "") == ["coder.prompt", "notes.md"]
        assert offered(tmp_path, command, "co") == ["coder.prompt"]
        assert offered(tmp_path, command, "agents/") == ["agents/tester.prompt"]
        assert offered(tmp_path, command, "ma") == ["the shell's own files"]
    assert offered(tmp_path, "run", "ma") == ["the shell's own files"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_and_its_answers(shell: str, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "holdfast"
    script = subprocess.run([program, "completion", shell], capture_output=True, text=True, timeout=60, check=True)
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in script.stdout
    words = {"COMP_WORDS": "holdfast doc", "COMP_CWORD": "1" if shell == "zsh" else "doc"}
    answer = subprocess.run(
        [program],
        env={"_HOLDFAST_COMPLETE": f"{shell}_complete", **words},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "doctor" in answer.stdout


def test_a_key_press_imports_nothing_heavy() -> None:
    code = (
        "import os, sys\n"
        "os.environ.update(_HOLDFAST_COMPLETE='bash_complete', COMP_WORDS='holdfast run --engine d', COMP_CWORD='3')\n"
        "from holdfast.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pydantic', 'anyio', 'asyncio', 'yaml', 'opentelemetry'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("plain,docker\nplain,dagger\n", "[]\n")


@pytest.mark.anyio
async def test_what_is_offered_is_there() -> None:
    assert set(_complete.ENGINES) == {"auto", *ENGINES}
    tools = [
        *await aio.toolset(SandboxConfig(), engine="fake"),
        *await aio.toolset(SandboxConfig(mode="code"), engine="fake"),
    ]
    assert {tool.name for tool in tools} <= set(_complete.TOOLS)
    assert {name for name in _complete.TOOLS if "_file" not in name} == {tool.name for tool in tools}

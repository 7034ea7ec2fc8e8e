"""What a shell may complete. Nothing heavy is imported for it: a key press waits."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

ENGINES = ("auto", "local", "docker", "dagger", "fake")
TOOLS = (
    "sandbox_run",
    "sandbox_open",
    "sandbox_exec",
    "sandbox_exec_read",
    "sandbox_exec_wait",
    "sandbox_fs_write",
    "sandbox_fs_read",
    "sandbox_fs_list",
    "sandbox_fs_delete",
    "sandbox_close",
    "sandbox_stage_file",
    "sandbox_publish_file",
)
_PROMPTS = (".prompt", ".md")


def engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


def runtimes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..runtimes import RUNTIMES

    return [name for name in RUNTIMES if name.startswith(incomplete)]


def tools(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Those that the agent may have; its file is not read."""
    return [name for name in TOOLS if name.startswith(incomplete)]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """As the shell itself completes files."""
    return [CompletionItem(incomplete, type="file")]


def prompts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Prompt files of the folder that is being typed; where there are none, whatever the shell finds."""
    folder, slash, name = incomplete.rpartition("/")
    try:
        beside = sorted(path.name for path in Path(f"{folder}{slash}" or ".").iterdir())
    except OSError:
        beside = []
    found = [one for one in beside if one.startswith(name) and one.endswith(_PROMPTS)]
    return [CompletionItem(f"{folder}{slash}{one}") for one in found] or files(ctx, param, incomplete)

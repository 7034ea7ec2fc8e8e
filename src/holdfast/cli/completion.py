"""`holdfast completion`: the script with which a shell completes our commands, options, engines and prompt files."""

from __future__ import annotations

import click

from ._common import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=Command,
    examples="""
        holdfast completion bash > holdfast.bash; . ./holdfast.bash
        holdfast completion zsh > _holdfast
        holdfast completion fish > holdfast.fish
    """,
)
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the script that makes a shell complete `holdfast`.

    For good: `holdfast completion bash` into ~/.local/share/bash-completion/completions/holdfast, zsh into a file
    _holdfast of a folder in fpath, fish into ~/.config/fish/completions/holdfast.fish.
    """
    from click.shell_completion import get_completion_class

    from . import group

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(group, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
    return 0

"""`holdfast run`: one program, once, in a sandbox of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from . import _complete, _options
from ._common import Command, engine_option, execute, print_json, say
from ._live import RING_BYTES, Live, conclude, source
from ._pulling import pulling
from ._render import duration, named, size

if TYPE_CHECKING:
    from ..results import RunResult

_RUNTIME_OF_SUFFIX = {".py": "python", ".js": "node", ".cjs": "node", ".mjs": "node", ".sh": "bash", ".bash": "bash"}


@click.command(
    "run",
    cls=Command,
    examples="""
        holdfast run main.py
        holdfast run -c 'print(6 * 7)'
        holdfast run -r node -c 'console.log(6 * 7)'
        echo 'print(6 * 7)' | holdfast run -
        cat data.csv | holdfast run -c 'import sys; print(len(sys.stdin.readlines()))'
        holdfast run -f in.csv=data.csv -c 'print(open("in.csv").read())'
        holdfast run -c 'open("a.txt", "w").write("hi")' -a '*.txt' -o out
        holdfast run -p pandas==2.2.3 -f in.csv=data.csv report.py
        holdfast run -t 5 --json -c 'import sys; print(sys.argv[1:])' -- a b
    """,
)
@click.argument("words", nargs=-1, metavar="[FILE | -] [-- ARGS...]", shell_complete=_complete.files)
@click.option("-c", "code", metavar="CODE", help="Run CODE instead of a file.")
@_options.runtime_option(help="python, node or bash; else told by the file's name.")
@_options.image_option
@engine_option
@click.option("-f", "--file", "files", metavar="PATH=SRC", multiple=True, help="Put file SRC at PATH first.")
@click.option("--stage", metavar="PATH=KEY", multiple=True, help="Put the object store's file KEY at PATH first.")
@click.option("-a", "--artifact", "artifacts", metavar="GLOB", multiple=True, help="Return files that match.")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where artifacts are saved.")
@click.option("-p", "--package", "packages", metavar="NAME", multiple=True, help="Install a package first.")
@_options.env_option
@_options.timeout_option
@_options.network_option
@_options.limit_options
@click.option("--cache", is_flag=True, help="Take what the same run gave before, on engines that remember.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as an agent's tool gets it.")
@_options.verbose_option
def command(words: Sequence[str], code: str | None, as_json: bool, **given: Any) -> int:
    """Run a program once, in a fresh sandbox.

    FILE's runtime is told by its ending; `-` reads the code from stdin. Otherwise what is piped in goes to the
    program. Output is live, and the exit status is the program's own.
    """
    if code is None and not words:
        raise click.UsageError("what shall run? Say FILE, -c CODE, or - for stdin")
    env = _options.environment(given["env"])
    file, args = (None, words) if code is not None else (words[0], words[1:])
    runtime = given["runtime"] or _runtime(file)

    async def work() -> int:
        from ..compute.runner import run

        text = code if code is not None else _code(str(file))
        request: dict[str, Any] = {
            "runtime": runtime,
            "image": given["image"],
            "args": args,
            "env": env,
            "files": _files(given["files"], file),
            "stage": _staged(given["stage"]),
            "stdin": None if file == "-" else source(),
            "artifacts": given["artifacts"],
            "packages": given["packages"],
            "cache": given["cache"],
            "timeout": given["timeout"],
            "network": given["network"],
            "limits": _options.limits(given),
            "engine": given["engine"],
            "on_progress": shown,
        }
        live = None if as_json else Live()
        if live:
            request |= {"on_output": live.show, "max_stdout_bytes": RING_BYTES, "max_stderr_bytes": RING_BYTES}
        result = await run(text, **request)
        _save(result, given["out"], wanted=bool(given["artifacts"]) and not as_json)
        if as_json:
            print_json(result.as_tool())
        if live:
            live.confess(result)
        if given["verbose"]:
            _summary(result)
        return conclude(result, result.limits["timeout_seconds"])

    with pulling(quiet=as_json) as shown:
        return execute(work, as_json=as_json)


def _runtime(file: str | None) -> str:
    if file in (None, "-"):
        return "python"
    path = Path(str(file))
    if found := _RUNTIME_OF_SUFFIX.get(path.suffix.lower()):
        return found
    raise click.UsageError(f"{path} does not tell its runtime by .py, .js, .mjs or .sh; say -r python, node or bash")


def _code(file: str) -> str:
    raw = _options.read_host_file(*((0, "stdin") if file == "-" else (file, file)))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise errors.InvalidRequest(f"{file} is not UTF-8 text (byte {error.start})") from error


def _staged(given: Sequence[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in given]
    if wrong := [path for path, assigned, key in pairs if not (path and assigned and key)]:
        raise click.UsageError(f"--stage {wrong[0]!r}: say --stage PATH=KEY")
    return {path: key for path, _, key in pairs}


def _files(given: Sequence[str], file: str | None) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    if str(file).endswith(".mjs"):
        files["package.json"] = '{"type": "module"}\n'  # the program is main.js there, and still a module
    for item in given:
        path, assigned, origin = item.partition("=")
        if not assigned:
            path, origin = os.path.basename(item), item  # noqa: PTH119
        files[path] = _options.read_host_file(origin, origin)
    return files


def _save(result: RunResult, folder: Path | None, wanted: bool) -> None:
    for published in result.artifacts_published:
        say(f"in the object store: {published.path} as {published.file_key} ({size(published.size_bytes)})")
    if result.artifacts_unpublished:
        say(f"not all artifacts could be published: {result.artifacts_unpublished}")
    for skipped in result.artifacts_skipped:
        say(f"not returned, over the limits for artifacts: {skipped.path} ({size(skipped.size_bytes)})")
    if hidden := result.artifacts_skipped_count - len(result.artifacts_skipped):
        say(f"not returned, over the limits for artifacts: {hidden} more")
    if result.artifacts_unlisted:
        say("there were so many files that not all were looked at for artifacts")
    if folder is None:
        if wanted and result.artifacts:
            names = ", ".join(artifact.path for artifact in result.artifacts)
            say(f"artifacts that were not saved, say -o DIR: {names}")
        return
    for artifact in result.artifacts:
        target = _options.place(folder, artifact.path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{os.getpid()}.part")
            part.write_bytes(artifact.content)
            part.replace(target)  # a link of this name is replaced, not followed
        except OSError as error:
            raise errors.InvalidRequest(f"cannot save {target}: {error.strerror}") from error


def _summary(result: RunResult) -> None:
    sys.stdout.flush()
    if result.cached:
        say("not run again: this is what came out before (--cache)")
    say(
        f"{result.runtime} on {result.engine}, {duration(result.duration_ms / 1000)}, "
        f"CPU {duration(result.cpu_ms / 1000)}, peak memory {size(result.peak_memory_bytes)}"
    )
    held = {name: value for name, value in result.limits.items() if not isinstance(value, dict)}
    say(f"limits: {named(held)}")
    for name, cut in result.limits.get("clamped", {}).items():
        say(f"{name} is {cut['effective']}, and not {cut['asked']}: the operator allows no more")
    for name, why in result.limits.get("not_held", {}).items():
        say(f"{name} is not held: {why}")

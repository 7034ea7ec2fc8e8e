"""The flow of one run: a fresh sandbox, files in, the program, artifacts out, nothing left."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields

from .. import errors, factory, runtimes
from ..abc import Capability, Effective, Mode, SandboxSpec
from ..config import Limits, Settings, settings
from ..guest.client import GuestClient, OnOutput, Source
from ..guest.command import Command, encoded
from ..guest.connection import Connection
from ..policy import allow_network
from ..results import ExecResult, RunResult
from . import artifacts as artifact_files

WORKSPACE = "/work"
_COPYING_SECONDS = 600.0
"""time for files to go in and artifacts to come out"""


async def run(
    code: str,
    *,
    runtime: str = "python",
    image: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    stdin: Source | str | None = None,
    artifacts: Sequence[str] = (),
    packages: Sequence[str] = (),
    timeout: float | None = None,
    network: bool = False,
    limits: Limits | None = None,
    engine: str | None = None,
    on_output: OnOutput | None = None,
    max_stdout_bytes: int | None = None,
    max_stderr_bytes: int | None = None,
) -> RunResult:
    """Run code once, in a sandbox that is made for it and goes away with it.

    Args:
        files: path in the working directory -> contents, written before the program starts.
        artifacts: patterns of files to return, such as `out/*.png` or `**/*.csv`.
        on_output: called with "stdout" or "stderr" and bytes while the program runs.

    Returns:
        A result, also when the program fails, is killed or runs out of time: see `end_cause`.

    Raises:
        InvalidRequest: empty code, an unknown runtime or engine, NUL in a text.
        PolicyError: the operator does not allow it.
        EngineUnavailable: no engine here can do it; says which lacks what.
        FileError: a file of `files` could not be written.
    """
    kind = runtimes.runtime(runtime)
    config = settings()
    if not code.strip():
        raise errors.InvalidRequest("there is no code to run")
    allow_network(network, config)
    seconds = config.default_timeout if timeout is None else timeout
    command = Command(
        argv=(*kind.command, f"{WORKSPACE}/{kind.script}", *args),
        env=dict(env or {}),
        timeout=seconds,
        stdout_cap_bytes=config.max_stdout_bytes if max_stdout_bytes is None else max_stdout_bytes,
        stderr_cap_bytes=config.max_stderr_bytes if max_stderr_bytes is None else max_stderr_bytes,
    )
    spec = SandboxSpec(
        name=f"run-{secrets.token_hex(8)}",
        mode=Mode.COMPUTE,
        runtime=kind.name,
        image=image,
        workspace=WORKSPACE,
        limits=limits or Limits(),
        network=network,
        # Whatever becomes of us: a run's sandbox ends by its own clock.
        max_lifetime=seconds + _COPYING_SECONDS,
    )
    _check_files(files or {}, spec.limits, kind.script)
    chosen = await factory.choose(engine, _needs(image, network, packages))
    async with chosen.once(spec) as (stream, effective):
        guest = GuestClient(await Connection.open(stream))
        for path, content in {kind.script: code, **(files or {})}.items():
            await guest.write_file(path, encoded(content) if isinstance(content, str) else content)
        data = encoded(stdin) if isinstance(stdin, str) else stdin
        ended = await guest.exec(command, data, on_output)
        kept, skipped = await artifact_files.collect(guest, artifacts, config)
    return _result(ended, kind.name, effective, command, kept, skipped, config)


def _check_files(files: Mapping[str, str | bytes], limits: Limits, script: str) -> None:
    if script in {
        posixpath.relpath(path, WORKSPACE) if path.startswith("/") else posixpath.normpath(path) for path in files
    }:
        raise errors.InvalidRequest(f"the code itself is written to {script}; give your file another name")
    if limits.max_files is not None and len(files) >= limits.max_files:
        raise errors.TooManyFiles(f"{len(files)} files are too many; the limit is {limits.max_files - 1}")
    for path, content in files.items():
        if limits.max_file_size_bytes is not None and len(content) > limits.max_file_size_bytes:
            raise errors.FileTooLarge(f"{path} has {len(content)} bytes; the limit is {limits.max_file_size_bytes}")


def _needs(image: str | None, network: bool, packages: Sequence[str]) -> frozenset[Capability]:
    needs = {Capability.COMPUTE, Capability.NETWORK_ON if network else Capability.NETWORK_OFF}
    if image:
        needs.add(Capability.IMAGES)
    if packages:
        needs.add(Capability.PACKAGES)
    return frozenset(needs)


def _result(
    ended: ExecResult,
    runtime: str,
    effective: Effective,
    command: Command,
    kept: tuple[artifact_files.Artifact, ...],
    skipped: tuple[str, ...],
    config: Settings,
) -> RunResult:
    return RunResult(
        **{field.name: getattr(ended, field.name) for field in fields(ended)},
        runtime=runtime,
        engine=effective.engine,
        artifacts=kept,
        artifacts_skipped=skipped,
        limits={
            "timeout_seconds": command.timeout,
            "max_stdout_bytes": command.stdout_cap_bytes,
            "max_stderr_bytes": command.stderr_cap_bytes,
            "max_artifact_bytes": config.max_artifact_bytes,
            **effective.limits,
            **({"not_held": effective.not_held} if effective.not_held else {}),
        },
    )

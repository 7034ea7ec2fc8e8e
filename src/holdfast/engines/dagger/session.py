"""A session with a Dagger engine: one process of its CLI, which is ours to start, to bound and to end.

The SDK's own connect waits for ever for an engine that is not there, and its close for minutes after one died.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from ... import errors, telemetry
from . import query as http
from .address import Address

_CONNECT_SECONDS = 30.0
_START_ENGINE_SECONDS = 600.0
_CLOSE_SECONDS = 1.5
_TELLING = re.compile("error|not found|no match|denied|refused|timed out", re.IGNORECASE)
QUICK = 60.0
"""seconds for a query that runs nothing"""


class DaggerSession:
    """Make it with `start`. Queries may come from any event loop; the process belongs to none."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str, folder: Path) -> None:
        self._process, self._port, self._token = process, port, token
        self.folder = folder
        """of ours, for what goes to the engine and comes from it"""
        self.prepared: dict[Any, str] = {}
        """what was prepared on this engine, by what it is made from: see `prepare.py`"""
        self.runs = 0
        self.in_flight = 0
        self.retired = False

    @classmethod
    def start(cls, cli: str, where: Address) -> DaggerSession:
        """Start the CLI and wait until it has an engine. Blocks.

        Raises:
            EngineUnavailable: no engine, in the CLI's own words.
        """
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environment = {"DO_NOT_TRACK": "1", "DAGGER_NO_NAG": "1", "DAGGER_SILENT": "1", **ours}
        environment.pop("_EXPERIMENTAL_DAGGER_RUNNER_HOST", None)
        if where.host is not None:
            environment["_EXPERIMENTAL_DAGGER_RUNNER_HOST"] = where.host
        try:
            folder = Path(tempfile.mkdtemp(prefix="holdfast-dagger-"))
            said = tempfile.TemporaryFile()  # noqa: SIM115 - the process has it for as long as it lives
        except OSError as error:
            raise errors.EngineUnavailable(f"there is no place for temporary files here: {error.strerror}") from error
        try:
            process = subprocess.Popen(
                [cli, "session", "--skip-workspace-modules", "--label", "dagger.io/sdk.name:holdfast"],
                stdin=subprocess.PIPE,  # it ends when this closes, so also when we are killed
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                start_new_session=True,  # Ctrl-C at a terminal is ours: it cancels the queries
            )
        except OSError as error:
            folder.rmdir()
            raise errors.EngineUnavailable(f"the Dagger CLI {cli} cannot be started: {error.strerror}") from error
        patience = _START_ENGINE_SECONDS if where.starts_one else _CONNECT_SECONDS
        line = _first_line(process, patience)
        try:
            answer = json.loads(line)
            port, token = int(answer["port"]), str(answer["session_token"])
        except (ValueError, KeyError, TypeError):
            ended = process.poll() is not None
            _end(process)
            folder.rmdir()
            said.seek(0)
            words = errors.printable(said.read()[-800:].decode(errors="replace").strip())
            late = "" if ended else f" within {patience:.0f} s"
            raise errors.EngineUnavailable(
                f"the Dagger CLI found no engine at {where}{late}: {words or 'it gave no reason'}"
            ) from None
        return cls(process, port, token, folder)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def query(self, text: str, variables: Mapping[str, Any] | None = None, deadline: float = QUICK) -> Any:
        """Ask the engine; `data` of its answer.

        Raises:
            QueryFailed: the engine said no.
            EngineGone: engine or session went away.
            TimeoutError: it took longer than `deadline` seconds; what it did for us is cancelled.
        """
        with anyio.fail_after(deadline):
            try:
                return await http.query(self._port, self._token, text, variables or {}, telemetry.headers())
            except http.EngineGone:
                self.close(patience=0)  # after its engine died, it would never answer again, and never end
                raise

    async def secret(self, uri: str, key: str) -> str:
        """The id of a secret; to the engine's cache, secrets of one key are the same."""
        text = "query($uri: String!, $key: String!) { secret(uri: $uri, cacheKey: $key) { id } }"
        return leaf(await self.query(text, {"uri": uri, "key": key}))

    async def host_file(self, path: Path, deadline: float = QUICK) -> str:
        """The id of a file of this machine, as it is now: the engine would remember what it was before."""
        text = "query($path: String!) { host { file(path: $path, noCache: true) { id } } }"
        return leaf(await self.query(text, {"path": str(path)}, deadline))

    def close(self, patience: float = _CLOSE_SECONDS) -> None:
        """End it: politely at first, so that its telemetry leaves too. Closing again is fine."""
        self.retired = True
        _end(self._process, patience)
        shutil.rmtree(self.folder, ignore_errors=True)  # another thread may be closing it, or a run writing there


def leaf(data: Any) -> str:
    """The one value at the end of a chain of objects."""
    while isinstance(data, dict):
        (data,) = data.values()
    return str(data)


def telling(words: str) -> str:
    """What an installer or a registry said, without what it says to everybody."""
    lines = [line.strip() for line in re.split(r"\\x0a|\n", words) if line.strip()]
    found = [line for line in lines if _TELLING.search(line)]
    return errors.printable("; ".join(dict.fromkeys(found or lines)))[:400]


def _first_line(process: subprocess.Popen[bytes], patience: float) -> bytes:
    """The first line of its stdout, or what there is of it when it ends or is late."""
    assert process.stdout is not None
    deadline, line, ready = time.monotonic() + patience, b"", select.poll()
    ready.register(process.stdout, select.POLLIN)
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0 and ready.poll(left * 1000):
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            break
        line += piece
    return line


def _end(process: subprocess.Popen[bytes], patience: float = 0) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()

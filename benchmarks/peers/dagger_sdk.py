"""Dagger's own SDK, by hand: the floor of runs on Dagger. In this environment because its HTTP client wants other
versions than .venv has.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import dagger
from dagger import dag
from driver import IMAGE, Peer, serve


class DaggerSdk(Peer):
    package = "dagger-io"

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self._text = ""

    async def open(self) -> None:
        await self._stack.enter_async_context(dagger.connection())

    async def close(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()
        await self._stack.aclose()

    def _fresh(self) -> dagger.Container:
        """A container whose exec the engine has not seen."""
        return dag.container().from_(IMAGE).with_env_variable("NONCE", secrets.token_hex(8))

    async def python(self, code: str) -> str:
        return await self._fresh().with_exec(["python3", "-c", code]).stdout()

    async def whole(self, code: str) -> None:
        """All that a result has: four queries."""
        done = await self._fresh().with_exec(["python3", "-c", code]).sync()
        assert await done.stdout() and await done.stderr() == "" and await done.exit_code() == 0

    async def transform(self, code: str) -> None:
        """A document in, what the code makes of it out; the text is made before and kept."""
        (self._folder / "main.py").write_text(code)
        path = self._folder / f"{secrets.token_hex(4)}.json"  # the engine remembers a path's content
        path.write_text(self._text)
        container = self._fresh().with_workdir("/work").with_file("/work/in.json", dag.host().file(str(path)))
        container = container.with_file("/work/main.py", dag.host().file(str(self._folder / "main.py")))
        await container.with_exec(["python3", "main.py"]).file("/work/out.json").export(str(self._folder / "out.json"))
        assert (self._folder / "out.json").read_bytes()
        path.unlink()

    def document(self, rows: int, filler: int) -> None:
        self._text = json.dumps([{"n": n, "text": "x" * filler} for n in range(rows)])


if __name__ == "__main__":
    serve(DaggerSdk())

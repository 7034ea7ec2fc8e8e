"""A peer for the tests: it answers over the protocol without a sandbox."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/peers"))

from driver import Peer, serve  # type: ignore[import-not-found]  # the file beside the peers


class Toy(Peer):  # type: ignore[misc]
    package = "anyio"

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def open(self) -> None:
        print("what a peer prints is not the protocol's")

    def close(self) -> None:
        Path(sys.argv[1]).write_text("closed")

    def exec(self, argv: list[str]) -> str:
        if argv == ["fail"]:
            raise ValueError("no such program")
        if argv == ["die"]:
            sys.exit(3)
        return ""

    async def python(self, code: str) -> str:
        return "1\n"

    def write(self, name: str, content: bytes) -> None:
        self._files[name] = content

    def read(self, name: str) -> bytes:
        return self._files[name]


if __name__ == "__main__":
    serve(Toy())

"""The runtimes by name: how code becomes a file and a command, on every engine."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Runtime:
    """How to run code of one kind."""

    name: str
    script: str
    """name of the file that the code is written to"""
    command: tuple[str, ...]
    """comes before the script"""
    image: str
    """what engines with images use by default"""


RUNTIMES = {
    "python": Runtime("python", "main.py", ("python3",), "python:3.11-slim"),
    "node": Runtime("node", "main.js", ("node",), "node:20-slim"),
    "bash": Runtime("bash", "main.sh", ("bash",), "ubuntu:22.04"),
}
ALIASES = {
    "linux": "bash",
    "shell": "bash",
    "sh": "bash",
    "py": "python",
    "python3": "python",
    "javascript": "node",
    "js": "node",
}


def runtime(name: str) -> Runtime:
    """The runtime of this name or shortcut.

    Raises:
        InvalidRequest: there is no such runtime.
    """
    found = RUNTIMES.get(ALIASES.get(name.lower(), name.lower()))
    if found is None:
        raise InvalidRequest(f"there is no runtime {name!r}; there are {', '.join(RUNTIMES)}")
    return found

"""`holdfast doctor`: which engines work here, what they guarantee, and how to get the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from . import _complete
from ._common import Command, execute, json_option, print_json
from ._render import facts, size, table

if TYPE_CHECKING:
    from ..abc import EngineStatus

_PROBE_SECONDS = 20.0
_WORDS = {
    "compute": "one-shot runs",
    "code": "sessions",
    "images": "container images",
    "real_processes": "real programs",
    "network_off": "no network",
    "network_on": "network on request",
    "memory_limit": "memory limit",
    "process_limit": "process limit",
    "cpu_limit": "CPU limit",
    "workspace_limit": "workspace limit",
    "packages": "packages",
    "user_switch": "other users",
}


@click.command(
    "doctor",
    cls=Command,
    examples="""
        holdfast doctor
        holdfast doctor --json
        holdfast doctor agent.prompt
    """,
)
@click.argument("file", required=False, metavar="[FILE]", shell_complete=_complete.prompts)
@json_option
def command(file: str | None, as_json: bool) -> int:
    """Say which engines work here, and how to fix the rest.

    With a prompt FILE: what it asks for, what the operator allows, and what its agent gets, on which engine.

    Exit status 0 when at least one engine runs programs, and FILE gets what it needs; else 1.
    """

    async def look() -> int:
        from ._agent import examine

        found = await examine(str(file))
        print_json(found.as_json()) if as_json else found.show()
        return 0 if found.ok else 1

    async def work() -> int:
        from ..engines import ENGINES

        found = [await _examine(name) for name in ENGINES]
        guest = _guest()
        if as_json:
            told: dict[str, Any] = {one.name: one.as_json() for one in found}
            print_json({"ok": any(one.works for one in found), "engines": told, "guest": guest})
        else:
            _show(found, guest)
        return 0 if any(one.works for one in found) else 1

    return execute(look if file else work, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Examined:
    name: str
    status: EngineStatus
    broken: str = ""
    """why a program did not run, although the engine said it could"""
    notes: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def real(self) -> bool:
        return "real_processes" in self.status.capabilities

    @property
    def works(self) -> bool:
        return self.status.available and self.real and not self.broken

    @property
    def verdict(self) -> str:
        if self.status.available and not self.real:
            return "test only"
        return "yes" if self.works else "no"

    def lacks(self) -> list[str]:
        return [word for word in _WORDS if word not in self.status.capabilities]

    def as_json(self) -> dict[str, Any]:
        return {
            "works": self.works,
            "version": self.status.version,
            "guarantees": sorted(self.status.capabilities),
            "lacks": self.lacks(),
            "reason": self.broken or self.status.reason,
            "fix": self.status.fix,
            "notes": self.notes,
        }


async def _examine(name: str) -> _Examined:
    """Ask the engine, and if it says that it works, try it: that is the only proof."""
    from ..abc import EngineStatus
    from ..compute.runner import run
    from ..engines import engine

    try:
        status = await engine(name).check()
    except ImportError as error:
        return _Examined(name, EngineStatus(False, reason=f"not in this installation: {error}"))
    broken = ""
    # An engine with images would have to fetch one first; its own check has to do.
    capable = {"compute", "real_processes"} <= status.capabilities
    if status.available and capable and "images" not in status.capabilities:
        try:
            tried = await run("exit 0", runtime="bash", engine=name, timeout=_PROBE_SECONDS)
            broken = "" if tried.ok else f"a program that does nothing ended with {tried.end_cause.value}"
        except errors.SandboxError as error:
            broken = error.message
    return _Examined(name, status, broken, await engine(name).notes() if status.available else {})


def _guest() -> dict[str, Any]:
    from .. import __version__
    from ..guest import build
    from ..guest.binary import guest_path, host_arch
    from ..guest.protocol import PROTOCOL

    told: dict[str, Any] = {"version": __version__, "protocol": PROTOCOL, "built_for": {}}
    try:
        told["host"] = host_arch()
        for arch in build.ARCHITECTURES:
            told["built_for"][arch] = guest_path(arch).stat().st_size
    except errors.GuestMissing as error:
        told["reason"] = error.message
    return told


def _show(found: list[_Examined], guest: dict[str, Any]) -> None:
    table(("ENGINE", "WORKS", "VERSION"), [(one.name, one.verdict, one.status.version or "-") for one in found])
    for one in found:
        click.echo()
        told = [("engine", one.name)]
        if one.status.available:
            held = [text for word, text in _WORDS.items() if word in one.status.capabilities]
            told.append(("guarantees", ", ".join(held)))
            told.append(("lacks", ", ".join(_WORDS[word] for word in one.lacks()) or "nothing"))
        told += [("reason", text) for text in (one.broken, one.status.reason) if text]
        told += [("fix", one.status.fix)] if one.status.fix else []
        told += one.notes.items()
        facts(told)
    click.echo()
    built = ", ".join(f"{arch} ({size(count)})" for arch, count in guest["built_for"].items()) or "nothing"
    facts(
        [
            ("guest", f"{guest['version']}, protocol {guest['protocol']}, built for {built}"),
            ("this machine", guest.get("host", "unknown")),
            *([("reason", guest["reason"])] if "reason" in guest else []),
        ]
    )

"""What an agent's prompt file asks for, what is allowed, and what its agent gets, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from ._common import say
from ._render import facts, setting, table

if TYPE_CHECKING:
    from ..frontmatter import Prompt
    from ..policy import Decision


@dataclass(frozen=True, slots=True)
class Examined:
    """A prompt file, weighed against the settings and the engines of this machine."""

    prompt: Prompt
    decision: Decision | None
    """None: it asks for no sandbox"""
    engine: str | None
    image: str | None
    reason: str
    """why its agent cannot work here, though all is allowed"""

    @property
    def ok(self) -> bool:
        return self.decision is None or (not self.decision.refusals and self.engine is not None)

    def as_json(self) -> dict[str, Any]:
        config = self.prompt.sandbox
        told: dict[str, Any] = {
            "ok": self.ok,
            "file": self.prompt.name,
            "sandbox": config.model_dump(exclude_none=True) if config else None,
            "notes": list(self.prompt.notes),
        }
        if self.decision:
            told |= {
                "policy": self.decision.as_tool(),
                "refusals": [str(one) for one in self.decision.refusals],
                "engine": self.engine,
                "image": self.image,
                "reason": self.reason,
            }
        return told

    def show(self) -> None:
        if self.decision is None:
            facts([("file", self.prompt.name), ("sandbox", "none asked for: its agent gets no tools")])
        else:
            rows = self.decision.rows
            table(
                ("", "ASKED", "ALLOWED", "EFFECTIVE", "VERDICT"),
                [(r.name, setting(r.asked), setting(r.allowed), setting(r.effective), r.verdict.value) for r in rows],
            )
            click.echo()
            facts(
                [
                    ("file", self.prompt.name),
                    ("mode", self.decision.request.mode),
                    ("engine", self.engine or "none"),
                    *([("reason", self.reason)] if self.reason else []),
                    *([("image", self.image)] if self.image else []),
                ]
            )
            for one in self.decision.refusals:
                say(str(one))
        for note in self.prompt.notes:
            say(f"note: {note}")


async def examine(file: str) -> Examined:
    """Weigh a prompt file; nothing is made.

    Raises:
        ConfigError: the file or a setting is wrong.
    """
    from .. import factory, frontmatter, runtimes, secrets
    from ..abc import Capability, Mode
    from ..config import settings
    from ..policy import Request, decide

    prompt = frontmatter.load(file)
    if prompt.sandbox is None:
        return Examined(prompt, None, None, None, "")
    request = Request.of(prompt.sandbox)
    found = settings()
    decision = decide(request, found)
    packages = prompt.sandbox.packages if request.mode == Mode.COMPUTE else ()
    needs = factory.needs(Mode(request.mode), image=request.image, network=request.network, packages=packages)
    try:
        if not decision.refusals:
            secrets.resolve(request.secrets, found)
        engine = await factory.choose(None, Mode(request.mode), needs)
        images = Capability.IMAGES in (await engine.check()).capabilities
    except (errors.EngineUnavailable, errors.ConfigError) as error:
        return Examined(prompt, decision, None, None, error.message)
    image = request.image or runtimes.runtime(request.runtime).image
    return Examined(prompt, decision, engine.name, image if images else None, "")

"""What one agent is offered: its config, the operator's decision on it, the engine, and who it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import telemetry
from ..config import SandboxConfig, Settings
from ..policy import Decision
from ..secrets import Masker


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """Who calls the tools: what decides which session an agent gets."""

    workflow_run_id: str | None = None
    agent_run_id: str | None = None
    agent_name: str | None = None
    environment: str | None = None
    """such as production: part of no key, shown in spans"""

    @property
    def attributes(self) -> dict[str, telemetry.Value]:
        """What spans say of who calls."""
        return {
            "workflow_run_id": self.workflow_run_id,
            "agent_run_id": self.agent_run_id,
            "agent_name": self.agent_name,
            "environment": self.environment,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """All decisions are made; nothing has been started."""

    config: SandboxConfig
    settings: Settings
    decision: Decision
    engine: str
    context: ExecutionContext
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    masker: Masker

    def cut(self, *names: str) -> dict[str, Any]:
        """What was asked for and is less now: asked, allowed, effective. Without names all of it."""
        found = self.decision.clamped
        return {name: row for name, row in found.items() if name in names or not names}

    @property
    def place(self) -> str:
        image = f", image {self.config.image_name}" if self.config.image_name else ""
        return f"engine {self.engine}{image}, {'with' if self.config.wants_network else 'no'} network"

    @property
    def bounds(self) -> str:
        """The limits, in words for a model."""
        limits = self.decision.limits
        said = [
            f"{self.decision.timeout:g} s by default, {self.settings.max_timeout:g} s at most",
            f"{limits.memory_mb} MB memory" if limits.memory_mb else "",
            f"{limits.workspace_mb} MB disk" if limits.workspace_mb else "",
            f"{limits.max_file_size_bytes >> 20} MB per file" if limits.max_file_size_bytes else "",
            f"{limits.processes} processes" if limits.processes else "",
        ]
        return f"Limits: {', '.join(filter(None, said))}."

"""The key of a session: who shares it. Structured, so that no id can be mistaken for another's."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from enum import StrEnum

from ..errors import InvalidRequest

_MAX_PART = 256


class Namespace(StrEnum):
    """What the id of a key is the id of."""

    WORKFLOW = "workflow"
    AGENT = "agent"
    USER = "user"
    CUSTOM = "custom"
    PRIVATE = "private"
    """a session that nobody else can find"""


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Namespace, id and name. Two callers with equal keys get one session."""

    namespace: Namespace
    id: str
    name: str = "default"

    def __post_init__(self) -> None:
        for part in (self.id, self.name):
            if not part or len(part) > _MAX_PART or not part.isprintable():
                raise InvalidRequest(
                    f"{part!r} cannot be part of a session's key: 1 to {_MAX_PART} printable characters"
                )

    @property
    def sandbox_name(self) -> str:
        """The name under which an engine knows the session: a hash, never somebody's text."""
        text = json.dumps([self.namespace.value, self.id, self.name])
        return "hf-" + hashlib.sha256(text.encode()).hexdigest()[:24]

    def __str__(self) -> str:
        return f"{self.namespace.value}/{self.id}/{self.name}"

    def labels(self) -> dict[str, str]:
        return {"namespace": self.namespace.value, "id": self.id, "name": self.name}

    @classmethod
    def from_labels(cls, labels: dict[str, str]) -> SessionKey | None:
        try:
            return cls(Namespace(labels["namespace"]), labels["id"], labels["name"])
        except (KeyError, ValueError):
            return None


def resolve(workflow: str | None, agent: str | None, session: str | None) -> SessionKey:
    """The key that a caller means.

    `session` is `workflow` or `default` (shared by the workflow), `agent` or `isolated` (the agent's own), or any other
    name (shared, beside the default one). Without a workflow and an agent, a name is a custom key of its own, and
    without a name too the session is private to the caller.
    """
    if session in ("agent", "isolated") and not agent:
        raise InvalidRequest(f"session={session!r} needs agent=: the session belongs to it")
    if session == "workflow" and not workflow:
        raise InvalidRequest("session='workflow' needs workflow=: the session belongs to it")
    if agent and session in ("agent", "isolated"):
        return SessionKey(Namespace.AGENT, agent, "default")
    name = "default" if session in (None, "workflow", "default") else str(session)
    if workflow:
        return SessionKey(Namespace.WORKFLOW, workflow, name)
    if agent:
        return SessionKey(Namespace.AGENT, agent, name)
    if session is not None:
        return SessionKey(Namespace.CUSTOM, session)
    return SessionKey(Namespace.PRIVATE, secrets.token_hex(16))

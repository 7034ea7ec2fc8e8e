"""A sandbox client of the OpenAI Agents SDK: `SandboxRunConfig(client=SandboxClient())` gives a `SandboxAgent` one of
our sessions, with the SDK's own tools for it.

`create` makes a session, `resume` finds it by the name in its state, from another process too, `delete` ends it. What
is closed and not deleted ends by its own clock. The session lives in the one loop of `holdfast.sync`, so it may be used
from one event loop after another.
"""

from __future__ import annotations

import uuid
from typing import Literal

from ... import errors
from ...config import settings
from ...sync import awaited
from . import brought_by
from .options import SessionOptions as SessionOptions

with brought_by("openai-agents"):
    from agents.sandbox import Manifest, SnapshotSpec, resolve_snapshot
    from agents.sandbox.session import (
        BaseSandboxClient,
        Dependencies,
        Instrumentation,
        SandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.snapshot import SnapshotBase

    from .openai_agents_session import HoldfastSession

WORKFLOW = "openai_agents"
"""the sessions belong to it: `holdfast ps` shows them, `holdfast close --workflow openai_agents --all` ends them"""
_DEFAULT_ROOT = Manifest().root


class SandboxState(SandboxSessionState):
    """What finds a session again, or makes it again."""

    type: Literal["holdfast"] = "holdfast"
    options: SessionOptions = SessionOptions()


class SandboxClient(BaseSandboxClient[SessionOptions | None]):
    """Makes, finds and ends sessions. The operator's settings bound what the options ask for."""

    backend_id = "holdfast"
    supports_default_options = True

    def __init__(
        self, *, instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None
    ) -> None:
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SessionOptions | None = None,
    ) -> SandboxSession:
        """Make a session.

        Raises:
            InvalidRequest: the manifest wants another workspace than the operator's settings name.
            EngineUnavailable, PolicyError …: as `holdfast.open_session`.
        """
        made = self._validate_manifest_for_create(_rooted(manifest or Manifest()))
        session_id = uuid.uuid4()
        state = SandboxState(
            session_id=session_id,
            manifest=made,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            options=options or SessionOptions(),
        )
        return await self._opened(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, SandboxState):
            raise TypeError(f"a state of this client is needed, not of {state.type}")
        state.assert_path_grants_rebound()
        return await self._opened(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner  # as all clients of the SDK do
        if not isinstance(inner, HoldfastSession):
            raise TypeError("a session of this client is needed")
        await awaited(inner.end)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandboxState)

    async def _opened(self, state: SandboxState) -> SandboxSession:
        env = {**state.options.env, **await state.manifest.environment.resolve()}
        options = state.options.model_copy(update={"env": env})
        opened = options.opened(WORKFLOW, state.session_id.hex)
        session = await awaited(opened.__aenter__)
        return self._wrap_session(HoldfastSession(state, session, opened), instrumentation=self._instrumentation)


def _rooted(manifest: Manifest) -> Manifest:
    workspace = settings().code_workdir
    if manifest.root == _DEFAULT_ROOT:
        return manifest.model_copy(update={"root": workspace}, deep=True)
    if manifest.root != workspace:
        raise errors.InvalidRequest(f"the manifest's root is {manifest.root}, and the workspace is {workspace}")
    return manifest

"""What an adapter that opens a session of its own can be told about it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from pydantic import BaseModel, ConfigDict

from ...code.manager import open_session
from ...code.session import Session
from ...config import Limits


class SessionOptions(BaseModel):
    """A session to open. The operator's settings bound it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: str = "python"
    """python, node or bash"""
    image: str | None = None
    """container image instead of the runtime's own"""
    engine: str | None = None
    """docker, local or fake; None: what the operator set, or the first that can do it"""
    network: bool = False
    """ask for network; the operator must allow it too"""
    env: dict[str, str] = {}
    """variables of all programs"""
    limits: Limits = Limits()

    def __hash__(self) -> int:  # frameworks look options up, and the one that is made has none where a dict is
        return hash(self.model_dump_json())

    def opened(self, workflow: str | None = None, session: str | None = None) -> AbstractAsyncContextManager[Session]:
        """`open_session` with these options; private, and ended when the block is left, if it is not named."""
        return open_session(
            workflow=workflow,
            session=session,
            runtime=self.runtime,
            image=self.image,
            engine=self.engine,
            network=self.network,
            env=dict(self.env),
            limits=self.limits,
        )

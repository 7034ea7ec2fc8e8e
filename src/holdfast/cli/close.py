"""`holdfast close`: end a session for everybody."""

from __future__ import annotations

import click

from .. import errors
from ._common import Command, Key, execute, takes_key


@click.command(
    "close",
    cls=Command,
    examples="""
        holdfast close --workflow demo
        holdfast close --workflow demo --all
    """,
)
@takes_key
@click.option("--all", "everything", is_flag=True, help="All sessions of the workflow, or of the agent.")
def command(key: Key, everything: bool) -> int:
    """End a session, with all that is in it."""
    key.require()
    if everything and not (key.workflow or key.agent):
        raise click.UsageError("--all needs --workflow or --agent: it ends all sessions of one")

    async def work() -> int:
        from .. import aio
        from ..code.keys import resolve
        from ..config import settings
        from ..engines import engine

        if everything:
            end, whose = (aio.end_workflow, key.workflow) if key.workflow else (aio.end_agent, key.agent)
            click.echo(f"closed {await end(str(whose), engine=key.engine)}")
            return 0
        wanted = resolve(key.workflow, key.agent, key.session)
        # Not opened first: a session whose guest does not answer must be closable too.
        found = [record for known, record in await aio.list_sessions(key.engine) if known == wanted]
        if not found:
            raise errors.SessionNotFound(f"there is no session {wanted}; `holdfast ps` lists them")
        for record in found:
            await aio.Session(wanted, engine(record.engine), record, False, False, settings()).close()
            click.echo(f"closed {wanted}")
        return 0

    return execute(work)

"""`holdfast open`: make a session, or find the one that is there."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from . import _options
from ._common import Command, Key, execute, json_option, print_json, say, takes_key
from ._pulling import pulling
from ._render import facts, named

if TYPE_CHECKING:
    from .. import aio


@click.command(
    "open",
    cls=Command,
    examples="""
        holdfast open --workflow demo
        holdfast open --workflow demo --session build -r bash --workspace-mb 64
        holdfast open --session scratch --idle-timeout 60 --json
        holdfast open --workflow demo --keep-for 600
        holdfast open
    """,
)
@takes_key
@_options.runtime_option(default="python", help="python, node or bash.")
@_options.image_option
@_options.env_option
@_options.network_option
@_options.limit_options
@click.option("--idle-timeout", type=_options.seconds, metavar="SECONDS", help="End it after so long without use.")
@click.option("--max-lifetime", type=_options.seconds, metavar="SECONDS", help="End it after so long in any case.")
@click.option("--keep-for", type=_options.seconds, metavar="SECONDS", help="Keep it so long after its workflow ends.")
@json_option
def command(key: Key, as_json: bool, **given: Any) -> int:
    """Open a session, or make it; it stays until closed.

    Whoever opens the same key, from any process, gets the same session. Without a key it gets a new name.
    """
    env = _options.environment(given["env"])
    if not key.given:
        key = replace(key, session=f"session-{secrets.token_hex(4)}")

    async def work() -> int:
        from .. import aio

        async with aio.open_session(
            runtime=given["runtime"],
            image=given["image"],
            workflow=key.workflow,
            agent=key.agent,
            session=key.session,
            engine=key.engine,
            limits=_options.limits(given),
            network=given["network"],
            env=env,
            idle_timeout=given["idle_timeout"],
            max_lifetime=given["max_lifetime"],
            keep_for=given["keep_for"],
            on_progress=shown,
        ) as session:
            if as_json:
                print_json(_as_json(session))
            else:
                _show(session, key)
        return 0

    with pulling(quiet=as_json) as shown:
        return execute(work, as_json=as_json)


def _as_json(session: aio.Session) -> dict[str, Any]:
    return {
        "ok": True,
        "key": str(session.key),
        **session.key.labels(),
        "created": session.created,
        "changed": session.changed,
        "workspace_lost": session.workspace_lost,
        "expires_at": session.record.expires_at,
        **session.effective.as_tool(),
    }


def _show(session: aio.Session, key: Key) -> None:
    effective = session.effective
    state = "created" if session.created else "resumed"
    if session.changed:
        state += ", with other settings than asked for: these hold"
    if session.workspace_lost:
        say("the session of this key that was open here is gone, with all that was in its workspace")
    facts(
        [
            ("session", str(session.key)),
            ("state", state),
            ("engine", effective.engine + (f", image {effective.image}" if effective.image else "")),
            ("runtime", effective.runtime),
            ("workspace", effective.workspace),
            ("network", "on" if effective.network else "off"),
            ("profile", effective.profile),
            ("limits", named(effective.limits)),
            *((f"not held: {name}", why) for name, why in effective.not_held.items()),
            ("use it", f"holdfast exec {key.words} -- COMMAND"),
        ]
    )

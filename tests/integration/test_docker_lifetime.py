"""How sessions end on Docker: labels, expiry, what is swept, what was lost, and what is never told (T39, T43, T57)."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import anyio
import docker
import pytest

from holdfast import aio, errors
from holdfast.code import sweep
from holdfast.engines.docker import labels, lifetime
from holdfast.engines.docker.lifetime import may_live

from .daemons import container_of, ours, until

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


# --- labels


def test_labels_are_signed() -> None:
    marks = {labels.PREFIX + "managed": "1", labels.PREFIX + "name": "x"}
    assert labels.verified(marks) is None
    signed = {**marks, labels.PREFIX + "signature": labels._sign(marks)}
    assert labels.verified(signed) == {"managed": "1", "name": "x"}
    assert labels.verified({**signed, labels.PREFIX + "name": "y"}) is None
    assert labels.verified({**signed, labels.PREFIX + "expiry": "0"}) is None
    assert labels.verified({**signed, "of.the.image": "z"}) == {"managed": "1", "name": "x"}


async def test_labels_tell_owner_and_expiry(daemon: Any) -> None:
    async with aio.open_session(engine="docker", max_lifetime=1000, keep_for=7) as box:
        marks = labels.verified(container_of(daemon, box).labels)
        assert marks is not None
        assert marks["owner"] == labels.owner()
        assert labels.owner_key().decode() not in json.dumps(marks)
        assert float(marks["expiry"]) - float(marks["created"]) == 1000
        assert float(marks["keep_for"]) == 7
        (record,) = [record for _, record in await aio.list_sessions("docker")]
        assert record.expires_at == float(marks["expiry"])
        assert abs(float(marks["created"]) - time.time()) < 100


@pytest.mark.parametrize(
    ("state", "age", "alive"),
    [
        ("running", 5, True),
        ("running", 129, True),
        ("running", 131, False),
        ("paused", 5, True),
        ("paused", 131, False),
        ("created", 59, True),
        ("created", 61, False),
        ("exited", 1, False),
        ("dead", 1, False),
        ("removing", 1, False),
    ],
)
def test_what_may_live(state: str, age: float, alive: bool) -> None:
    """By the daemon's clock: what the client's clock said when it wrote the labels does not matter."""
    for client in (0.0, 1e9, 4e9):
        marks = {"created": repr(client), "expiry": repr(client + 100)}
        assert may_live(state, 1e6, marks, 1e6 + age) is alive
        assert may_live(state, "1970-01-12T13:46:40.123456789Z", marks, 1e6 + age) is alive
    if state in ("running", "paused"):
        assert may_live(state, 1e6, {"created": "0", "expiry": ""}, 1e9)


# --- sweep


async def test_never_started_container_is_swept_when_it_is_old(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aio.open_session(engine="docker") as box:
        marks = container_of(daemon, box).labels
    made = daemon.containers.create("python:3.11-slim", ["true"], labels=marks)
    assert await aio.sweep(engine="docker") == 0
    monkeypatch.setattr(lifetime, "_NEVER_STARTED_SECONDS", 0.0)
    assert await aio.sweep(engine="docker") == 1
    with pytest.raises(docker.errors.NotFound):
        made.reload()


async def test_a_run_that_was_never_started_is_swept_too(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[dict[str, str]] = []

    def look(stream: str, data: bytes) -> None:
        marks.extend(each["Labels"] for each in ours(daemon))

    await aio.run("print(1)", engine="docker", on_output=look)
    made = daemon.containers.create("python:3.11-slim", ["true"], labels=marks[0])
    monkeypatch.setattr(lifetime, "_NEVER_STARTED_SECONDS", 0.0)
    assert await aio.sweep(engine="docker") == 1
    with pytest.raises(docker.errors.NotFound):
        made.reload()


async def test_a_session_that_outlived_its_time_is_swept_and_others_are_not(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guest cannot end it: the container is paused."""
    monkeypatch.setattr(lifetime, "_GRACE_SECONDS", 0.0)
    async with (
        aio.open_session(engine="docker", workflow=secrets.token_hex(8), max_lifetime=2) as late,
        aio.open_session(engine="docker") as young,
    ):
        stuck = container_of(daemon, late)
        stuck.pause()
        with anyio.fail_after(60):
            while not await aio.sweep(engine="docker"):
                await anyio.sleep(0.2)
        with pytest.raises(docker.errors.NotFound):
            stuck.reload()
        assert (await young.exec("true")).ok


async def test_opening_sweeps_by_the_way_once_a_minute(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aio.open_session(engine="docker") as box:
        marks = container_of(daemon, box).labels
    left = daemon.containers.create("python:3.11-slim", ["true"], labels=marks)
    monkeypatch.setattr(lifetime, "_NEVER_STARTED_SECONDS", 0.0)
    monkeypatch.setattr(sweep, "_last", {})
    async with aio.open_session(engine="docker"):
        await until(lambda: left.id not in {each["Id"] for each in ours(daemon)})
    again = daemon.containers.create("python:3.11-slim", ["true"], labels=marks)
    try:
        async with aio.open_session(engine="docker"):
            again.reload()  # it is not a minute later
    finally:
        again.remove()


async def test_a_sweep_that_fails_is_nobody_elses_business(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []

    async def broken(**options: Any) -> int:
        failed.append(options)
        raise RuntimeError("the sweep is broken")

    monkeypatch.setattr(sweep, "_last", {})
    monkeypatch.setattr(sweep, "sweep", broken)
    async with aio.open_session(engine="docker") as box:
        assert (await box.exec("true")).ok
        await until(lambda: bool(failed))


async def test_one_that_cannot_be_removed_does_not_keep_the_others(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = secrets.token_hex(8)
    for name in ("a", "b", "c"):
        async with aio.open_session(engine="docker", workflow=workflow, session=name):
            pass
    from holdfast.engines.docker.engine import DockerEngine

    remove = DockerEngine.destroy

    async def refusing(self: DockerEngine, record: Any) -> None:
        if record.labels["name"] == "a":
            raise errors.EngineFailed("this one refuses to die")
        await remove(self, record)

    monkeypatch.setattr(DockerEngine, "destroy", refusing)
    with pytest.raises(errors.EngineFailed, match="refuses to die"):
        await aio.end_workflow(workflow, engine="docker")
    assert [json.loads(each["Labels"]["holdfast.key"])["name"] for each in ours(daemon)] == ["a"]
    monkeypatch.undo()
    daemon.api.remove_container(container_name(workflow, "a"), force=True, v=True)


def container_name(workflow: str, session: str) -> str:
    from holdfast.code.keys import resolve

    return resolve(workflow, None, session).sandbox_name


async def test_a_run_ends_with_its_client(daemon: Any) -> None:
    """Its guest sees the end of stdin; nobody has to remove anything."""
    with anyio.move_on_after(30) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run_for_ever)
            await until(lambda: bool(ours(daemon)) and ours(daemon)[0]["State"] == "running")
            found = daemon.containers.get(ours(daemon)[0]["Id"])
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    with pytest.raises(docker.errors.NotFound):
        found.reload()


async def _run_for_ever() -> None:
    await aio.run("import time; time.sleep(1000)", engine="docker", timeout=2000)


# --- lost


async def test_t39_a_lost_workspace_is_reported_once(daemon: Any) -> None:
    workflow = secrets.token_hex(8)

    def opened() -> Any:
        return aio.open_session(engine="docker", workflow=workflow)

    async with opened() as first:
        assert not first.workspace_lost
        await first.write("kept", "x")
        container_of(daemon, first).kill()
        await until(lambda: not ours(daemon))
        with pytest.raises(errors.SessionError):
            await first.read("kept")
        with pytest.raises(errors.SessionNotFound, match="its workspace is gone; open it again"):
            await first.read("kept")
    async with opened() as second:
        assert (second.created, second.workspace_lost) == (True, True)
        assert not (await second.list()).entries
    async with opened() as third:
        assert (third.created, third.workspace_lost) == (False, False)
        await third.close()
    async with opened() as fourth:
        assert (fourth.created, fourth.workspace_lost) == (True, False), "it was closed on purpose"
    assert await aio.end_workflow(workflow, engine="docker") == 1
    async with opened() as fifth:
        assert (fifth.created, fifth.workspace_lost) == (True, False), "it was ended on purpose"
        await fifth.close()


# --- secrets


async def test_t57_what_is_in_env_is_for_programs_only(daemon: Any) -> None:
    secret, unit = f"s3cret-{secrets.token_hex(16)}", "x" * 3000
    async with aio.open_session(engine="docker", env={"TOKEN": secret, "LONG": unit}) as box:
        assert (await box.exec("printf %s $TOKEN")).stdout == secret
        assert (await box.exec("printf %s $LONG")).stdout == unit
        container = container_of(daemon, box)
        assert secret not in json.dumps(container.attrs)
        assert secret not in json.dumps(container.top(ps_args="axww -o pid,args"))
        inside = await box.exec("env -i sh -c 'cat /proc/[0-9]*/cmdline; cat /proc/1/environ; cat /.holdfast/*'")
        assert secret not in inside.stdout + inside.stderr
        logs = daemon.api.inspect_container(container.id)["LogPath"]
        assert not logs

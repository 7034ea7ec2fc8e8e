"""Every way in that NATS has: with the right login files come and go, with a wrong one the error has a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.config import settings
from holdfast.staging.reach import Place
from holdfast.staging.store import open_store

from .conftest import get, put
from .servers import Authority, Nkey, credentials, decentralised, server

pytestmark = [pytest.mark.engines, pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def way(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Settings of NATS, none of which is set."""
    monkeypatch.setenv("HOLDFAST_STAGING_TIMEOUT", "5")
    yield monkeypatch


async def works() -> None:
    async with open_store(settings()) as store:
        place = Place(settings().staging_bucket, "file")
        await put(store, place, bytes(500_000))
        assert await get(store, place) == bytes(500_000)


async def refused(kind: type[errors.SandboxError] = errors.StagingDenied, said: str = "refuses our login") -> None:
    with pytest.raises(kind, match=said):
        await works()


async def test_user_and_password(way: pytest.MonkeyPatch) -> None:
    with server('authorization { user: "u", password: "p" }') as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        await refused()
        way.setenv("HOLDFAST_NATS_USER", "u")
        way.setenv("HOLDFAST_NATS_PASSWORD", "wrong")
        await refused()
        way.setenv("HOLDFAST_NATS_PASSWORD", "p")
        await works()
        way.delenv("HOLDFAST_NATS_PASSWORD")
        await refused(errors.ConfigError, "HOLDFAST_NATS_PASSWORD")
        way.setenv("HOLDFAST_NATS_PASSWORD", "p")
        way.setenv("HOLDFAST_NATS_TOKEN", "t")
        await refused(errors.ConfigError, "keep one")


async def test_token(way: pytest.MonkeyPatch) -> None:
    with server('authorization { token: "t" }') as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_TOKEN", "wrong")
        await refused()
        way.setenv("HOLDFAST_NATS_TOKEN", "t")
        await works()


async def test_nkey(way: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine, other = Nkey("U"), Nkey("U")
    with server(f"authorization {{ users: [ {{ nkey: {mine.public} }} ] }}") as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_NKEY", str(tmp_path / "seed"))
        await refused(errors.ConfigError, "cannot be read")
        for wrong in ("nothing", Nkey("A").seed, other.seed[:-2] + "AA"):
            (tmp_path / "seed").write_text(wrong)
            await refused(errors.ConfigError, "seed")
        (tmp_path / "seed").write_text(other.seed)
        await refused()
        (tmp_path / "seed").write_text(f"# mine\n{mine.seed}\n")
        await works()


async def test_credentials_file(way: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, mine = decentralised()
    with server(config) as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_CREDS", str(tmp_path / "creds"))
        (tmp_path / "creds").write_text(decentralised()[1])
        await refused()
        (tmp_path / "creds").write_text("nothing")
        await refused(errors.ConfigError, "no user JWT")
        (tmp_path / "creds").write_text(credentials(re.findall(r"eyJ\S+", mine)[0], Nkey("U").seed))
        await refused()
        (tmp_path / "creds").write_text(mine)
        await works()


async def test_tls(way: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = ours.issue("server")
    with server(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}') as url:
        for scheme in ("nats", "tls"):
            way.setenv("HOLDFAST_NATS_URL", url.replace("nats:", f"{scheme}:"))
            way.delenv("HOLDFAST_NATS_CA", raising=False)
            await refused(errors.StagingUnavailable, "(?i)certificate")
            way.setenv("HOLDFAST_NATS_CA", str(theirs.certificate))
            await refused(errors.StagingUnavailable, "(?i)certificate")
            way.setenv("HOLDFAST_NATS_CA", str(ours.certificate))
            await works()
        way.setenv("HOLDFAST_NATS_CA", str(tmp_path / "missing"))
        await refused(errors.ConfigError, "HOLDFAST_NATS_CA")


async def test_tls_is_never_left_out_where_it_was_asked_for(way: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server without TLS at an address that says tls: nothing is told to it."""
    with server("") as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        await works()
        way.setenv("HOLDFAST_NATS_URL", url.replace("nats:", "tls:"))
        await refused(errors.StagingUnavailable, "has no TLS")
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_CA", str(Authority(tmp_path, "ours").certificate))
        await refused(errors.StagingUnavailable, "has no TLS")


async def test_a_certificate_of_the_client(way: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = ours.issue("server")
    asked = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{ours.certificate}", verify: true'
    with server(f"tls {{ {asked} }}") as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_CA", str(ours.certificate))
        await refused(errors.StagingUnavailable, "no object store")
        for authority in (theirs, ours):
            shown, private = authority.issue("client")
            way.setenv("HOLDFAST_NATS_CERT", str(shown))
            await refused(errors.ConfigError, "HOLDFAST_NATS_KEY")
            way.setenv("HOLDFAST_NATS_KEY", str(private))
            await (refused(errors.StagingUnavailable, "no object store") if authority is theirs else works())
            way.delenv("HOLDFAST_NATS_KEY")


async def test_permissions_of_the_server_hold_and_are_named(way: pytest.MonkeyPatch, bucket: str) -> None:
    reader = (
        f'["$JS.API.STREAM.MSG.GET.OBJ_{bucket}", "$JS.API.CONSUMER.*.OBJ_{bucket}", '
        f'"$JS.API.CONSUMER.*.OBJ_{bucket}.>", "$JS.API.CONSUMER.MSG.NEXT.OBJ_{bucket}.>"]'
    )
    documented = (
        f'["$O.{bucket}.>", "$JS.API.STREAM.MSG.GET.OBJ_{bucket}", "$JS.API.STREAM.PURGE.OBJ_{bucket}", '
        f'"$JS.API.STREAM.CREATE.OBJ_{bucket}", "$JS.API.CONSUMER.CREATE.OBJ_{bucket}.>", '
        f'"$JS.API.CONSUMER.MSG.NEXT.OBJ_{bucket}.>", "$JS.API.CONSUMER.DELETE.OBJ_{bucket}.>"]'
    )
    config = f"""authorization {{ users: [
        {{ user: documented, password: p, permissions: {{ publish: {documented}, subscribe: "_INBOX.>" }} }},
        {{ user: all, password: p }},
        {{ user: reader, password: p, permissions: {{ publish: {reader}, subscribe: "_INBOX.>" }} }},
        {{ user: nobody, password: p, permissions: {{ publish: "nothing", subscribe: "_INBOX.>" }} }},
        {{ user: deaf, password: p, permissions: {{ publish: ">", subscribe: "nothing" }} }},
    ] }}"""
    place = Place(bucket, "file")
    with server(config) as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_PASSWORD", "p")
        for user in ("documented", "all", "documented"):
            way.setenv("HOLDFAST_NATS_USER", user)
            await works()
        way.setenv("HOLDFAST_NATS_USER", "reader")
        async with open_store(settings()) as store:
            assert len(await get(store, place)) == 500_000
            for size in (0, 1, 500_000):
                with pytest.raises(errors.StagingDenied, match=r"(?i)permissions violation"):
                    await put(store, place, bytes(size))
            with pytest.raises(errors.StagingDenied):
                await store.delete(place)
            assert len(await get(store, place)) == 500_000
        for user in ("nobody", "deaf"):
            way.setenv("HOLDFAST_NATS_USER", user)
            await refused(said="(?i)permissions violation")


async def test_a_server_without_jetstream_is_named(way: pytest.MonkeyPatch) -> None:
    config = "accounts { A { jetstream: disabled, users: [ {user: u, password: p} ] } }"
    with server(config) as url:
        way.setenv("HOLDFAST_NATS_URL", url)
        way.setenv("HOLDFAST_NATS_USER", "u")
        way.setenv("HOLDFAST_NATS_PASSWORD", "p")
        await refused(errors.StagingUnavailable, "JetStream")

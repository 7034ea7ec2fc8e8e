"""An engine behind TLS: through a proxy with certificates it works, and each mistake is named before the CLI tries."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from holdfast import aio, errors
from holdfast.engines.dagger.engine import DaggerEngine
from tests import certificates
from tests.integration.daemons import relay
from tests.testbed import require

from .conftest import another_engine

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return certificates.make(tmp_path)


def host(port: int, folder: Path, *parts: str) -> str:
    given = "&".join(f"{part}_path={folder}/{part}.pem" for part in parts)
    return f"tls://127.0.0.1:{port}?{given}"


async def test_an_engine_behind_a_tls_proxy(
    dagger: DaggerEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATION_SANDBOX_ENGINE_MODE", "remote")
    path = require("dagger")["hosts"]["unix"].removeprefix("unix://")
    async with relay(path, tls=certificates.server(folder)) as port:
        for mistake, says in {
            host(port, folder / "unknown", "ca", "cert", "key"): "hangs up.*cert_path",
            host(port, folder / "good", "ca"): "hangs up.*cert_path",
            host(port, folder / "wrong", "ca", "cert", "key"): "not trusted.*ca_path",
            host(port, folder / "good", "ca", "cert"): "belong together",
            host(port, folder / "nowhere", "ca"): "No such file.*nowhere/ca.pem",
            host(1, folder / "good", "ca", "cert", "key"): "nothing answers",
        }.items():
            monkeypatch.setenv("DAGGER_HOST", mistake)
            with anyio.fail_after(20), pytest.raises(errors.EngineUnavailable, match=says):
                await aio.run("print(1)")
        monkeypatch.setenv("DAGGER_HOST", host(port, folder / "good", "ca", "cert", "key"))
        assert (await aio.run("print(6 * 7)")).stdout == "42\n"
        dagger.close()


async def test_an_engines_own_port_with_tls_is_of_no_use(
    dagger: DaggerEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers its own CLI with HTTP/1.1. If this fails, the advice in deployment.md is out of date."""
    said = ""
    with another_engine(folder) as own, anyio.fail_after(30):
        monkeypatch.setenv("DAGGER_HOST", host(own.tls_port, folder / "good", "ca", "cert", "key"))
        while "--tlscert" not in said:  # until it listens there, Docker's own proxy takes the call and hangs up
            with pytest.raises(errors.EngineUnavailable) as failed:
                await aio.run("print(1)")
            said = str(failed.value)

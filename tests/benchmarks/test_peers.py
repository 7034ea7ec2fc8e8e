"""The protocol between the harness and a peer's driver, with a driver that has no sandbox behind it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from _measure import NotHere
from _peers import FILES, FOLDER, Driver

TOY = Path(__file__).with_name("toy.py")

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def toy(tmp_path: Path) -> AsyncIterator[Driver]:
    async with Driver.started("toy", command=[sys.executable, str(TOY), str(tmp_path / "end")]) as driver:
        yield driver


async def test_a_driver_says_what_it_can_and_times_its_own_calls(tmp_path: Path) -> None:
    async with toy(tmp_path) as driver:
        assert driver.version and set(driver.can) == {"open", "exec", "python", "write", "read"}
        assert await driver.time("open") >= 0 and await driver.time("exec", argv=["true"]) >= 0
        await driver.time("write", name="f", size=1000)
        assert await driver.time("read", name="f", size=1000) >= 0
        assert (await driver.ask("many", at_once=4, each=2, what="exec", words=[["true"]]))["ms"] >= 0
        assert (await driver.ask("once"))["ms"] >= 0


async def test_what_a_peer_raises_is_its_answer_and_the_next_call_goes_on(tmp_path: Path) -> None:
    async with toy(tmp_path) as driver:
        with pytest.raises(NotHere, match="ValueError: no such program"):
            await driver.ask("exec", argv=["fail"])
        await driver.time("write", name="f", size=10)
        with pytest.raises(NotHere, match="10 bytes of 11"):
            await driver.ask("read", name="f", size=11)
        assert await driver.time("exec", argv=["true"]) >= 0


async def test_a_driver_that_dies_is_told_and_not_waited_for(tmp_path: Path) -> None:
    async with toy(tmp_path) as driver:
        with pytest.raises(NotHere, match="died"):
            await driver.ask("exec", argv=["die"])


async def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match="it needs a moon"):
        async with Driver.started("toy", command=[sys.executable, "-c", "raise SystemExit('it needs a moon')"]):
            pytest.fail("it started")


async def test_what_is_open_is_closed_when_the_harness_goes(tmp_path: Path) -> None:
    async with toy(tmp_path) as driver:
        await driver.ask("open")
    assert (tmp_path / "end").read_text() == "closed"


async def test_what_is_not_open_is_not_closed(tmp_path: Path) -> None:
    async with toy(tmp_path) as driver:
        await driver.ask("exec", argv=["true"])
    assert not (tmp_path / "end").exists()


def test_each_peer_has_its_file_and_its_pin() -> None:
    pins = (FOLDER / "requirements.txt").read_text().lower().replace("_", "-")
    for name, file in FILES.items():
        source = (FOLDER / file).read_text()
        package = source.split('package = "')[1].split('"')[0]
        assert f"\n{package}==" in pins, name

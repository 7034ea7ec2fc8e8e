"""The peers: an environment of their own, the images that two of them need, and a driver process for each.

Nothing of them is in .venv. `peers/driver.py` has the protocol; one file in `peers/` drives one peer through its
documented API.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from _measure import NotHere, Took, chosen_peers, leave_out, progress
from anyio.streams.buffered import BufferedByteReceiveStream

FOLDER = Path(__file__).parent / "peers"
FILES = {
    "docker-py": "docker_py.py",
    "SWE-ReX": "swe_rex.py",
    "llm-sandbox": "llm_sandbox_docker.py",
    "AutoGen": "autogen.py",
    "inspect_ai": "inspect_ai_docker.py",
    "smolagents": "smolagents_docker.py",
}
NAMES = tuple(FILES)
DAGGER_SDK = "Dagger SDK"
FILES[DAGGER_SDK] = "dagger_sdk.py"  # a floor: it is measured whatever peers are asked for
_IN_IMAGE = {
    "SWE-ReX": (["swe-rex==1.4.0"], []),
    "smolagents": (
        ["jupyter_kernel_gateway==3.0.1", "jupyter_client", "ipykernel"],
        ["jupyter", "kernelgateway", "--KernelGatewayApp.ip=0.0.0.0", "--KernelGatewayApp.port=8888"],
    ),
}
"""peer -> what must be installed in its image, and the image's command"""
_COMPOSE = "github.com/docker/compose/v2@v2.29.7"
_PATIENCE = 120.0
_FAREWELL = 6.0


def cache() -> Path:
    root = os.environ.get("HOLDFAST_BENCH_CACHE") or Path.home() / ".cache/holdfast-bench"
    return Path(root).absolute()


def environment() -> Path:
    """The folder of the peers' environment, for the pins of today."""
    return cache() / hashlib.sha256((FOLDER / "requirements.txt").read_bytes()).hexdigest()[:12]


def python() -> Path:
    return environment() / "bin/python"


def pip(command: str) -> list[str]:
    return [str(python()), "-m", "pip", command, "-q", "--disable-pip-version-check"]


def make_environment() -> None:
    """Takes a minute or two, once."""
    target = environment()
    if (target / "complete").exists():
        return
    progress("making the peers' environment, once: a minute or two")
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
    subprocess.run([*pip("install"), "-r", str(FOLDER / "requirements.txt")], check=True, stdout=sys.stderr)
    (target / "complete").touch()


def make_image(name: str) -> str:
    """The image of a peer that needs its server inside: python:3.11-slim and the wheels of this machine's pip."""
    packages, command = _IN_IMAGE[name]
    import docker

    try:
        client: Any = docker.from_env()
    except docker.errors.DockerException as error:
        raise NotHere(f"no Docker daemon: {error}") from None
    with contextlib.closing(client):
        base = client.images.get("python:3.11-slim")
        tag = f"holdfast-bench/{name.lower()}:{base.id[7:19]}"
        if client.images.list(tag):
            return tag
        progress(f"making the image of {name}, once")
        wheels = environment() / "wheels" / name
        ask = ["python3", "-c", "import platform; print(platform.python_version())"]
        version = client.containers.run(base, ask, remove=True, network_mode="none").decode().strip()
        subprocess.run(
            [*pip("download"), "--only-binary=:all:", "--python-version", version, "-d", str(wheels), *packages],
            check=True,
            stdout=sys.stderr,
        )
        box = client.containers.run("python:3.11-slim", ["sleep", "600"], detach=True, network_mode="none")
        try:
            tar = subprocess.run(["tar", "-c", "-C", str(wheels), "."], check=True, capture_output=True).stdout
            box.exec_run(["mkdir", "/wheels"])
            box.put_archive("/wheels", tar)
            install = "python3 -m pip install -q --no-index --break-system-packages --find-links /wheels "
            done = box.exec_run(["sh", "-c", f"{install} {' '.join(packages)} && rm -r /wheels"])
            if done.exit_code:
                raise NotHere(f"its image could not be made: {done.output.decode()[-300:]}")
            changes = [f"CMD {json.dumps(command)}"] if command else []
            box.commit(*tag.split(":"), changes=changes)
        finally:
            box.remove(force=True, v=True)
        return tag


def make_compose() -> None:
    """`docker compose`, which inspect_ai drives; built from Go's module proxy where the machine has none."""
    folder = cache() / "docker/cli-plugins"
    if (folder / "docker-compose").exists() or not subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    ).returncode:
        return
    from holdfast.guest.build import find_go

    progress("building docker compose, once: some minutes")
    folder.mkdir(parents=True, exist_ok=True)
    go = find_go()
    found = json.loads(
        subprocess.run([go, "mod", "download", "-json", _COMPOSE], check=True, capture_output=True).stdout
    )
    linking = f"-s -w -X github.com/docker/compose/v2/internal.Version={_COMPOSE.partition('@')[2]}"
    subprocess.run(
        [go, "build", "-trimpath", f"-ldflags={linking}", "-o", str(folder / "docker-compose.new"), "./cmd"],
        check=True,
        cwd=found["Dir"],
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
    )
    (folder / "docker-compose.new").rename(folder / "docker-compose")


def prepare(names: tuple[str, ...]) -> dict[str, str]:
    """Makes what they need, and says of each its version or why it is not here."""
    found: dict[str, str] = {}
    for name in names:
        try:
            make_environment()
            if name in _IN_IMAGE:
                make_image(name)
            if name == "inspect_ai":
                make_compose()
            found[name] = anyio.run(_version, name)
        except NotHere as error:
            found[name] = f"not here: {error}"
        except (OSError, subprocess.SubprocessError, ImportError) as error:
            said = getattr(error, "stderr", None) or b""
            found[name] = " ".join(f"not here: {error} {said.decode(errors='replace')[-200:]}".split())[:300]
    return found


async def _version(name: str) -> str:
    async with Driver.started(name) as driver:
        return driver.version


class Driver:
    """One peer in its own process. Each call answers with what the driver measured."""

    def __init__(self, name: str, process: anyio.abc.Process) -> None:
        self.name = name
        self.version = ""
        self.can: tuple[str, ...] = ()
        self.shares_files = False
        self.process = process
        assert process.stdout is not None
        self._answers = BufferedByteReceiveStream(process.stdout)

    @classmethod
    @asynccontextmanager
    async def started(
        cls, name: str, *, command: list[str] | None = None, timeout: int | None = None
    ) -> AsyncIterator[Driver]:
        """`timeout`: of all that runs in it, for peers that have none for a single call."""
        if command is None:
            command = [str(python()), str(FOLDER / FILES[name])]
        env = {**os.environ, "PYTHONWARNINGS": "ignore", **({"PEER_TIMEOUT": str(timeout)} if timeout else {})}
        if name in _IN_IMAGE:
            env["PEER_IMAGE"] = make_image(name)
        if (cache() / "docker/cli-plugins/docker-compose").exists():
            env["DOCKER_CONFIG"] = str(cache() / "docker")
        log = cache() / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            process = await anyio.open_process(command, stderr=errors, env=env)
        driver = cls(name, process)
        try:
            try:
                hello = await driver._answer()
            except NotHere:
                raise NotHere(log.read_text(errors="replace").strip()[-300:] or "its driver ended at once") from None
            driver.version, driver.can = hello["version"], tuple(hello["can"])
            driver.shares_files = hello["shares_files"]
            yield driver
        finally:
            with anyio.CancelScope(shield=True):
                assert process.stdin is not None
                await process.stdin.aclose()  # it closes what is open, and ends
                with anyio.move_on_after(_FAREWELL):
                    await process.wait()
                if process.returncode is None:
                    process.terminate()
                    with anyio.move_on_after(_FAREWELL):
                        await process.wait()
                if process.returncode is None:
                    process.kill()
                await process.aclose()

    async def _answer(self) -> dict[str, Any]:
        try:
            with anyio.fail_after(_PATIENCE):
                line = await self._answers.receive_until(b"\n", 1 << 20)
            found: dict[str, Any] = json.loads(line)
        except (anyio.IncompleteRead, anyio.EndOfStream, ValueError):
            raise NotHere("its driver died") from None
        except TimeoutError:
            raise NotHere(f"no answer within {_PATIENCE:g} s") from None
        return found

    async def ask(self, do: str, **words: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(json.dumps({"do": do, **words}).encode() + b"\n")
        except anyio.BrokenResourceError:
            raise NotHere("its driver died") from None
        answer = await self._answer()
        if not answer["ok"]:
            raise NotHere(f"{do}: {answer['error']}")
        return answer

    async def time(self, do: str, **words: Any) -> Took:
        """Milliseconds of one call, by the driver's watch."""
        return Took((await self.ask(do, **words))["ms"])


@asynccontextmanager
async def peers(*needed: str, opened: bool = True, timeout: int | None = None) -> AsyncIterator[list[Driver]]:
    """Those that were asked for and can do all of this, each with an open sandbox; of the others it is said why."""
    found: list[Driver] = []
    if chosen_peers():
        progress(f"starting {', '.join(chosen_peers())}")
    async with contextlib.AsyncExitStack() as stack:
        for name in chosen_peers():
            try:
                driver = await stack.enter_async_context(Driver.started(name, timeout=timeout))
                if missing := set(needed) - set(driver.can):
                    leave_out(name, f"its API has no {' and no '.join(sorted(missing))}")
                    continue
                if opened:
                    await driver.ask("open")
            except NotHere as error:
                leave_out(name, str(error))
            else:
                found.append(driver)
        yield found


@asynccontextmanager
async def dagger_sdk() -> AsyncIterator[list[Driver]]:
    """It, connected to the engine; nothing where the peers' environment was not made."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            if not python().exists():
                raise NotHere("the peers' environment was not made: python -m benchmarks makes it")
            driver = await stack.enter_async_context(Driver.started(DAGGER_SDK))
            await driver.ask("open")
        except NotHere as error:
            leave_out(DAGGER_SDK, str(error))
            yield []
        else:
            yield [driver]

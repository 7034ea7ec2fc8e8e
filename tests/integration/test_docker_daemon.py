"""Daemons that are not there, hang, drip, talk nonsense, or speak TLS (T45, T46)."""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from holdfast import aio, errors
from holdfast.abc import Capability
from holdfast.engines import installed
from holdfast.engines.docker import daemon as calls
from holdfast.engines.docker import engine as module
from holdfast.engines.docker.address import Address
from holdfast.engines.docker.engine import DockerEngine
from tests import certificates
from tests.testbed import require

from .daemons import container_of, ours, relay, socket_of

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

Handler = Callable[[anyio.abc.ByteStream], Awaitable[None]]


@asynccontextmanager
async def pretender(handle: Handler, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DockerEngine]:
    """An engine whose daemon is `handle`; it is given up after a second."""

    async def one(near: anyio.abc.ByteStream) -> None:
        async with near:
            try:
                await handle(near)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    monkeypatch.setattr(module, "_CHECK_SECONDS", 1.0)
    monkeypatch.setattr(calls, "QUICK", 1.0)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.listeners[0].extra(_PORT)}")
    async with anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, one)
        yield DockerEngine()
        serving.cancel_scope.cancel()
    await listener.aclose()


_PORT = anyio.abc.SocketAttribute.local_port
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def silent(near: anyio.abc.ByteStream) -> None:
    await anyio.sleep_forever()


async def dripping(near: anyio.abc.ByteStream) -> None:
    await near.send(_JSON + b"Content-Length: 1000000\r\n\r\n")
    while True:
        await near.send(b" ")
        await anyio.sleep(0.05)


async def dripping_headers(near: anyio.abc.ByteStream) -> None:
    await near.send(_JSON)
    while True:
        await near.send(b"X")
        await anyio.sleep(0.05)


def saying(answer: bytes) -> Handler:
    async def say(near: anyio.abc.ByteStream) -> None:
        await near.receive()
        await near.send(answer)

    return say


ODD = {
    "silent": (silent, "did not answer within"),
    "drips": (dripping, "did not answer within"),
    "drips headers": (dripping_headers, "did not answer within"),
    "500": (saying(b'HTTP/1.1 500 no\r\nContent-Length: 18\r\n\r\n{"message":"sick"}'), "refuses to work: sick"),
    "502 html": (saying(b"HTTP/1.1 502 no\r\nContent-Length: 4\r\n\r\n<h1>"), "refuses to work: <h1>"),
    "html": (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>"), "not send JSON"),
    "half json": (saying(_JSON + b'Content-Length: 100\r\n\r\n{"a": 1'), "broke off"),
    "half json, whole length": (saying(_JSON + b'Content-Length: 7\r\n\r\n{"a": 1'), "not send JSON"),
    "half chunk": (saying(_JSON + b'Transfer-Encoding: chunked\r\n\r\nff\r\n{"a":'), "broke off"),
    "bad chunk": (saying(_JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "length"),
    "negative length": (saying(_JSON + b"Content-Length: -5\r\n\r\n"), "length"),
    "a list": (saying(_JSON + b"Content-Length: 2\r\n\r\n[]"), "not a Docker daemon"),
    "another animal": (saying(b"220 mail.example ESMTP\r\n\r\n"), "no web server"),
    "hangs up": (saying(b""), "hung up"),
    "endless headers": (saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000), "no web server"),
}


@pytest.mark.parametrize("kind", ODD)
async def test_t45_an_odd_daemon_is_unavailable_in_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, words = ODD[kind]
    with anyio.fail_after(20):
        async with pretender(handle, monkeypatch) as engine:
            status = await engine.check()
            assert not status.available
            assert words in status.reason, status.reason
            assert status.fix
            with installed(engine), pytest.raises(errors.EngineUnavailable):
                await aio.run("print(1)", engine="docker")


async def test_an_answer_in_pieces_is_an_answer(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the above: what comes byte by byte and in chunks is understood."""
    text = b'{"OSType": "linux", "Architecture": "aarch64", "ServerVersion": "1", "MemoryLimit": true}'

    async def slowly(near: anyio.abc.ByteStream) -> None:
        await near.receive()
        chunks = b"".join(b"%x;note\r\n%c\r\n" % (1, byte) for byte in text)
        for byte in _JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n":
            await near.send(bytes([byte]))

    async with pretender(slowly, monkeypatch) as engine:
        monkeypatch.setattr(module, "_CHECK_SECONDS", 20.0)
        status = await engine.check()
        assert status.available, status.reason
        assert Capability.MEMORY_LIMIT in status.capabilities
        assert Capability.PROCESS_LIMIT not in status.capabilities


async def test_a_daemon_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host, words in (
        (f"unix://{tmp_path}/nothing", "No such file"),
        ("tcp://127.0.0.1:1", "refused"),
        ("ssh://user@host", "forward the daemon's socket"),
        ("npipe:////./pipe/x", "is not unix://PATH"),
        ("tcp://127.0.0.1:port", "ort"),
    ):
        monkeypatch.setenv("DOCKER_HOST", host)
        status = await DockerEngine().check()
        assert not status.available
        assert words in status.reason, status.reason
        assert status.fix


async def test_the_kernel_gives_up_before_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not answer: to Python that is a TimeoutError too, and a pull has no deadline of its own."""

    async def silence(_: Address) -> anyio.abc.ByteStream:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    monkeypatch.setattr(Address, "connect", silence)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    daemon = calls.Daemon()
    with pytest.raises(errors.EngineUnavailable, match=r"192\.0\.2\.1.*timed out"):
        await daemon.call("answer", "GET", "/info")
    with pytest.raises(errors.EngineUnavailable, match=r"192\.0\.2\.1.*timed out"):
        await daemon.follow("pull", "POST", "/images/create", {}, {}, lambda _: None)


async def test_auto_takes_docker_where_it_answers_and_local_where_not(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    assert (await aio.run("print(1)")).engine == "docker"
    async with aio.open_session() as box:
        assert box.effective.engine == "docker"
    require("bubblewrap")
    monkeypatch.setenv("HOLDFAST_ENGINE", "local")
    assert (await aio.run("print(1)")).engine == "local"
    monkeypatch.delenv("HOLDFAST_ENGINE")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{state}/nothing")
    assert (await aio.run("print(1)")).engine == "local"
    async with aio.open_session() as box:
        assert box.effective.engine == "local"


async def test_t46_one_hung_session_does_not_hold_up_others(daemon: Any) -> None:
    workflow = secrets.token_hex(8)
    async with aio.open_session(engine="docker", workflow=workflow) as hung:
        await hung.release()
        guest = container_of(daemon, hung).attrs["State"]["Pid"]
        os.kill(guest, signal.SIGSTOP)
        try:
            async with anyio.create_task_group() as waiting:
                for _ in range(60):
                    waiting.start_soon(_try, workflow)
                for _ in range(3):
                    async with aio.open_session(engine="docker") as box:
                        assert (await box.exec("echo fine")).stdout == "fine\n"
                waiting.cancel_scope.cancel()
        finally:
            os.kill(guest, signal.SIGCONT)
        assert (await hung.exec("echo again")).stdout == "again\n"
        await hung.close()


async def _try(workflow: str) -> None:
    async with aio.open_session(engine="docker", workflow=workflow):
        pytest.fail("it is stopped and cannot answer")


async def test_a_call_that_is_given_up_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = anyio.Event()

    async def watching(near: anyio.abc.ByteStream) -> None:
        try:
            while True:
                await near.receive()
        finally:
            gone.set()

    async with pretender(watching, monkeypatch) as engine:
        monkeypatch.setattr(module, "_CHECK_SECONDS", 600.0)
        with anyio.move_on_after(0.2):
            await engine.check()
        with anyio.fail_after(20):
            await gone.wait()


async def test_opening_that_is_cancelled_at_any_call_leaves_nothing(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of an opening is made to hang in turn, and the opening is cancelled then (T41)."""
    stages = (
        rb"POST /containers/create",
        rb"PUT /containers/\w+/archive",
        rb"GET /containers/[0-9a-f]{64}/json",
        rb"POST /containers/\w+/attach",
        rb"POST /containers/\w+/start",
    )
    for stage in stages:
        reached = anyio.Event()

        async def hold(
            head: bytes, body: bytes, stage: bytes = stage, reached: anyio.Event = reached
        ) -> tuple[bytes, bytes]:
            if re.match(stage, head):
                reached.set()
                await anyio.sleep(0.2)
            return head, body

        async with relay(socket_of(daemon), hold) as port:
            monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
            with installed(DockerEngine()):
                async with anyio.create_task_group() as opening:
                    opening.start_soon(_open_and_stay)
                    with anyio.fail_after(30):
                        await reached.wait()
                    opening.cancel_scope.cancel()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{socket_of(daemon)}")
        assert not ours(daemon), stage


async def _open_and_stay() -> None:
    async with aio.open_session(engine="docker"):
        await anyio.sleep_forever()


# --- TLS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return certificates.make(tmp_path)


async def test_a_daemon_behind_tls(daemon: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay(socket_of(daemon), tls=certificates.server(folder)) as port:  # as with `dockerd --tlsverify`
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(folder / "good"))
        with installed(DockerEngine()):
            async with aio.open_session(engine="docker") as box:
                assert (await box.exec("cat", stdin=b"over tls")).stdout == "over tls"
                await box.write("big", b"x" * 3_000_000)
                await box.release()  # the next call comes in by an exec
                assert len(await box.read("big")) == 3_000_000
                async with anyio.create_task_group() as tasks:
                    for number in range(8):
                        tasks.start_soon(_echo, box, number)
            assert (await aio.run("print(1)", engine="docker")).stdout == "1\n"
        for kind, words in (("wrong", "self-signed|unable to get local issuer"), ("unknown", "certificate")):
            monkeypatch.setenv("DOCKER_CERT_PATH", str(folder / kind))
            status = await DockerEngine().check()
            assert not status.available
            assert any(word in status.reason for word in words.split("|")), status.reason
        monkeypatch.setenv("DOCKER_CERT_PATH", str(folder / "nowhere"))
        assert "needs ca.pem" in (await DockerEngine().check()).reason


async def _echo(box: aio.Session, number: int) -> None:
    told = await box.exec(f"head -c 200000 /dev/zero; echo {number} >&2", max_stdout_bytes=300_000)
    assert (len(told.stdout_bytes), told.stderr) == (200_000, f"{number}\n")

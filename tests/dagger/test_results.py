"""What comes out of a run on a real Dagger engine is what happened: the engine's own limits do not show."""

from __future__ import annotations

import inspect
import json
import random
import re
import urllib.request

import pytest

import holdfast
from holdfast import EndCause, aio, errors
from holdfast.engines.dagger.engine import DaggerEngine
from tests.testbed import require

from .conftest import elsewhere

pytestmark = [pytest.mark.engines, pytest.mark.anyio]


@pytest.mark.parametrize("code", [0, 1, 127, 128, 137, 143, 191, 192, 255])
async def test_every_exit_code_is_a_result(dagger: DaggerEngine, code: int) -> None:
    """By itself the engine makes an error of 128 to 191."""
    result = await aio.run(f"print('said'); raise SystemExit({code})")
    assert (result.exit_code, result.signal, result.stdout) == (code, None, "said\n")
    assert result.ok == (code == 0)


@pytest.mark.parametrize("number", [6, 9, 11, 15])
async def test_a_death_by_signal_is_a_result(dagger: DaggerEngine, number: int) -> None:
    result = await aio.run(f"import os; print('said', flush=True); os.kill(os.getpid(), {number})")
    assert (result.exit_code, result.signal, result.stdout) == (None, number, "said\n")
    assert result.end_cause is EndCause.COMPLETED


async def test_bytes_stay_bytes(dagger: DaggerEngine) -> None:
    """By itself the engine replaces what is not UTF-8."""
    result = await aio.run("import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert (result.stdout_bytes, result.encoding) == (bytes(range(256)), "utf-8-lossy")


async def test_a_flood_is_capped_and_counted(dagger: DaggerEngine) -> None:
    result = await aio.run(
        "import sys\nfor _ in range(200): sys.stdout.buffer.write(b'x' * 1000000)\nprint('end', file=sys.stderr)"
    )
    assert (result.stdout_total_bytes, len(result.stdout_bytes)) == (200_000_000, 200_000)
    assert (result.truncated, result.stderr, result.ok) == (True, "end\n", True)


async def test_a_runtime_that_the_image_lacks_is_named(dagger: DaggerEngine) -> None:
    with pytest.raises(errors.CommandNotFound, match="node"):
        await aio.run("1", runtime="node", image="python:3.11-slim")


async def test_an_image_that_is_not_allowed_or_not_there(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ImageNotAllowed, match="nosuch"):
        await aio.run("1", image="nosuch:1")
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", "nosuch:1,python:3.11-slim")
    with pytest.raises(errors.ImageNotFound, match="nosuch"):
        await aio.run("1", image="nosuch:1")
    assert (await aio.run("print(1)", image="python:3.11-slim")).stdout == "1\n"


def digest_of(image: str) -> str:
    name, _, tag = image.partition(":")
    request = urllib.request.Request(
        f"http://{require('registry')['address']}/v2/library/{name}/manifests/{tag}",
        headers={"Accept": "application/vnd.docker.distribution.manifest.v2+json"},
        method="HEAD",
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.headers["Docker-Content-Digest"])


async def test_an_image_by_digest(dagger: DaggerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, nobodys = digest_of("python:3.11-slim"), f"sha256:{'a' * 64}"
    monkeypatch.setenv("STATION_SANDBOX_ALLOWED_IMAGES", f"python:3.11-slim@{digest},node:20-slim@{nobodys}")
    for image in (f"python@{digest}", "python:3.11-slim"):
        assert (await aio.run("print(1)", image=image)).stdout == "1\n"
    with pytest.raises(errors.ImageNotAllowed):
        await aio.run("1", image=f"python@{nobodys}")
    # The tag is there, and has another content than the rule names: that content is what is asked for.
    with pytest.raises(errors.ImageNotFound, match=f"node@{nobodys}"):
        await aio.run("1", runtime="node", image="node:20-slim")


async def test_a_run_always_runs_again(dagger: DaggerEngine) -> None:
    code = "import time; print(time.time_ns())"
    first, second = await aio.run(code), await aio.run(code)
    assert first.stdout != second.stdout
    assert (first.cached, second.cached) == (False, False)


async def test_a_cached_run_says_so(dagger: DaggerEngine, mark: str) -> None:
    code = f"import time; print('{mark}', time.time_ns())"
    first = await aio.run(code, cache=True, files={"a": "1"})
    again = await aio.run(code, cache=True, files={"a": "1"})
    other = await aio.run(code, cache=True, files={"a": "2"})
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert first.stdout == again.stdout != other.stdout
    # from another process too
    told = elsewhere(
        f"import holdfast, json; r = holdfast.run({code!r}, cache=True, files={{'a': '1'}});"
        "print(json.dumps([r.cached, r.stdout]))"
    )
    assert json.loads(told.stdout) == [True, first.stdout], told.stderr


async def test_failed_runs_are_cached_as_what_they_were(dagger: DaggerEngine, mark: str) -> None:
    code = f"import os; print('{mark}'); os._exit(137)"
    results = [await aio.run(code, cache=True) for _ in range(2)]
    assert [(result.cached, result.exit_code) for result in results] == [(False, 137), (True, 137)]


async def test_large_inputs_go_by_file_and_are_never_stale(dagger: DaggerEngine) -> None:
    """The engine remembers a host's file by its path; 50 MB inside the query would take six seconds."""
    code = "import json; rows = json.load(open('in.json')); print(len(rows), rows[-1]['tail'])"
    for tail in ("a", "b"):
        rows = [{"n": n, "text": "x" * 80} for n in range(50_000)] + [{"tail": tail}]
        result = await aio.run(code, files={"in.json": json.dumps(rows)})
        assert result.stdout == f"50001 {tail}\n", result.stderr


async def test_large_artifacts_come_whole(dagger: DaggerEngine) -> None:
    code = """
        import os, random
        os.makedirs('out/deep')
        random.seed(7)
        open('out/deep/big.bin', 'wb').write(random.randbytes(6_000_000))
        open('out/huge.bin', 'wb').write(bytes(30_000_000))
        open('out/small.txt', 'w').write('small')
    """
    result = await aio.run(inspect.cleandoc(code), artifacts=["out"])
    random.seed(7)
    assert {one.path: one.content for one in result.artifacts} == {
        "out/deep/big.bin": random.randbytes(6_000_000),
        "out/small.txt": b"small",
    }
    assert [(one.path, one.size_bytes) for one in result.artifacts_skipped] == [("out/huge.bin", 30_000_000)]


@pytest.mark.timeout(300)
async def test_packages_of_python(dagger: DaggerEngine) -> None:
    result = await aio.run("import six; print(six.__version__)", packages=["six==1.16.0"])
    assert result.stdout == "1.16.0\n", result.stderr
    with pytest.raises(errors.PackagesFailed, match="No matching distribution"):
        await aio.run("1", packages=["holdfast-no-such-package-1"])
    # the layer had a network, the code has none
    result = await aio.run(
        "import socket; socket.create_connection(('127.0.0.1', 1))", packages=["six==1.16.0"], timeout=20
    )
    assert "PermissionError" in result.stderr


@pytest.mark.timeout(300)
async def test_packages_of_node(dagger: DaggerEngine) -> None:
    code = "const n = require('is-number'); import('is-number').then(m => console.log(n(1), m.default('x')))"
    result = await aio.run(code, runtime="node", packages=["is-number@7.0.0"])
    assert result.stdout == "true false\n", result.stderr
    with pytest.raises(errors.PackagesFailed, match="404"):
        await aio.run("1", runtime="node", packages=["holdfast-no-such-package-1"])


async def test_the_sdk_is_not_imported(dagger: DaggerEngine) -> None:
    told = elsewhere("import sys, holdfast; holdfast.run('1'); print('dagger' in sys.modules, 'httpx' in sys.modules)")
    assert told.stdout == "False False\n", told.stderr


def test_from_the_shell(dagger: DaggerEngine) -> None:
    told = elsewhere("from holdfast.cli import main; import sys; sys.argv[1:] = ['run', '-c', 'print(6*7)']; main()")
    assert (told.stdout, told.returncode) == ("42\n", 0), told.stderr


def test_blocking(dagger: DaggerEngine) -> None:
    result = holdfast.run("print(6 * 7)")
    assert (result.stdout, result.engine) == ("42\n", "dagger")
    assert re.fullmatch("RLIMIT_NPROC.*", result.limits["held_by"]["processes"])

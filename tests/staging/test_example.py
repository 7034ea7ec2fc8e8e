"""The whole way, user → store → sandbox → store → user: on this machine, and from a client inside a container."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import docker
import pytest

from tests.testbed import require

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


def check(said: str) -> None:
    assert "sandbox_stage_file {'file_key': 'workflows/staging-" in said
    assert "sandbox_publish_file" in said and "out/large.csv.gz" in said
    assert "none of it went through the model" in said and "1 session ended" in said
    assert "✘" not in said


@pytest.mark.parametrize("engine", ["local", "docker"])
def test_the_example_runs(engine: str) -> None:
    require("bubblewrap" if engine == "local" else "images")
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as state:  # short: it holds a unix socket
        environment = {
            **os.environ,
            "HOLDFAST_ENGINE": engine,
            "HOLDFAST_NATS_URL": require("nats")["url"],
            "HOLDFAST_STATE_DIR": state,
            "HOLDFAST_OWNER_KEY": secrets.token_hex(16),
        }
        words = [sys.executable, "examples/staging.py"]
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, (done.stdout, done.stderr)
    check(done.stdout)


def test_the_example_runs_from_a_container() -> None:
    """The client shares nothing with the sandbox: no folder and no process; both only know daemon and store."""
    host, images = require("docker")["host"], require("images")
    socket = host.removeprefix("unix://")
    if not host.startswith("unix://"):
        pytest.skip("the testbed's daemon has no socket that a container could be given")
    client = docker.DockerClient(base_url=host)
    mounts = {
        ROOT / "src": "/app/src",
        ROOT / "examples": "/app/examples",
        sysconfig.get_path("purelib"): "/app/site",
    }
    environment = {
        "PYTHONPATH": "/app/src:/app/site",
        "HOLDFAST_ENGINE": "docker",
        "HOLDFAST_NATS_URL": require("nats")["url"],
        "HOLDFAST_OWNER_KEY": secrets.token_hex(16),
    }
    try:
        said = client.containers.run(
            images["python"],
            ["python3", "/app/examples/staging.py"],
            remove=True,
            stderr=True,
            network_mode="host",  # where the testbed's server is
            volumes=[*(f"{source}:{target}:ro" for source, target in mounts.items()), f"{socket}:/var/run/docker.sock"],
            environment=environment,
        )
    finally:
        client.close()
    check(said.decode())

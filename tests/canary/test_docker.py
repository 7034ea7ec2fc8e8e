from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import docker
import docker.errors
import pytest

from tests.testbed import require

pytestmark = pytest.mark.engines

Image = Literal["python", "node", "bash", "empty"]


@pytest.fixture
def client() -> Iterator[Any]:
    client = docker.DockerClient(base_url=require("docker")["host"])
    yield client
    client.close()


def run(client: Any, image: Image, *argv: str, init: bool = False) -> str:
    """What a program in a fresh container says; its status must be 0."""
    # entrypoint: the image's own would be in the way of what is asked
    container = client.containers.create(
        require("images")[image], argv[1:], entrypoint=argv[0], init=init, network_mode="none"
    )
    try:  # not containers.run: it leaves a container behind that could not be started
        container.start()
        status = container.wait()["StatusCode"]
        said: str = container.logs().decode().strip()
    finally:
        container.remove(force=True)
    assert status == 0, said
    return said


@pytest.mark.parametrize(
    ("image", "argv", "answer"),
    [
        ("python", ("python", "-c", "print(6 * 7)"), "42"),
        (
            "python",
            ("python3", "-c", "import asyncio, ctypes, sqlite3, ssl, sys; print(sys.version[:4])"),
            "3.11",
        ),
        ("node", ("node", "-p", "6 * 7"), "42"),
        ("node", ("node", "-p", "process.version.split('.')[0]"), "v20"),
        ("bash", ("bash", "-c", "echo $((6 * 7))"), "42"),
    ],
)
def test_a_container_of_each_image_runs_its_programs(
    client: Any, image: Image, argv: tuple[str, ...], answer: str
) -> None:
    assert run(client, image, *argv) == answer


@pytest.mark.parametrize(
    ("image", "argv"),
    [
        ("python", ("pip", "--version")),
        ("python", ("python", "-m", "venv", "/tmp/venv")),
        ("node", ("npm", "--version")),
    ],
)
def test_images_have_their_package_managers(client: Any, image: Image, argv: tuple[str, ...]) -> None:
    run(client, image, *argv)  # raises unless the status is 0


def test_the_empty_image_runs_a_program_that_is_put_into_it(client: Any) -> None:
    # Docker's own init: a static program that the daemon mounts, so nothing of the image is needed
    assert "tini" in run(client, "empty", "/sbin/docker-init", "--version", init=True)


def test_the_empty_image_has_no_shell(client: Any) -> None:
    with pytest.raises(docker.errors.APIError, match=r"executable file not found|no such file"):
        run(client, "empty", "sh", "-c", "true")
    run(client, "bash", "sh", "-c", "true")

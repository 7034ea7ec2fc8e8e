"""A local registry with our images, which the Dagger engine asks instead of the public one."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from functools import partial

from testbed.cache import digest
from testbed.core import TestbedError
from testbed.machine import CommandError
from testbed.parts import rootfs
from testbed.parts.base import Part
from testbed.parts.containers import Container, ContainerKeeper
from testbed.parts.docker import DockerCli, docker_failed
from testbed.parts.images import Image, Images, import_image
from testbed.parts.rootfs import Recipe
from testbed.ports import LOOPBACK
from testbed.settings import RegistrySettings

CONTAINER_NAME = "holdfast-testbed-registry"
PORT = 5000
"""Inside the containers' network."""

_RECIPE = Recipe("registry-base", ("docker-registry",))
# Debian's own configuration asks for a password.
_CONFIG = f"""version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: /var/lib/registry}}, delete: {{enabled: true}}}}
http: {{addr: ":{PORT}"}}
"""
_CONFIG_PATH = "etc/docker/registry/testbed.yml"  # an archive must not hold a path twice
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


class Registry(Part[RegistrySettings]):
    name = "registry"
    needs = ("docker", "images")

    def look(self) -> RegistrySettings:
        port = self._keeper().port()
        for image in self._images():
            if not self._has(port, image):
                raise TestbedError(f"The registry does not have {image} as Docker has it", "call testbed/up registry")
        return {"address": f"{LOOPBACK}:{port}"}

    def bring_up(self) -> None:
        import_image(self.bed, self.name, self._image())
        port = self._keeper().start()
        self._wait(port)
        for image in self._images():
            if not self._has(port, image):
                self._push(port, image)

    def _push(self, port: int, image: str) -> None:
        docker = DockerCli(self.machine)
        there = f"{LOOPBACK}:{port}/{_repository(image)}"
        with self.report.step(self.name, f"{image} pushed"):
            try:
                docker("tag", image, there)
                docker("push", "--quiet", there, timeout=600)
                docker("rmi", there)  # the tag only; it would name a port that may change
            except CommandError as error:
                raise docker_failed(error, f"pushing {image} to the local registry") from error

    def _has(self, port: int, image: str) -> bool:
        """Whether the registry has the very image that Docker has under this name."""
        local = DockerCli(self.machine).inspect("image", [image]).get(image)
        repository, _, tag = _repository(image).rpartition(":")
        answer = _get(port, f"/v2/{repository}/manifests/{tag}")
        if local is None or answer is None or answer[0] != http.HTTPStatus.OK:
            return False
        _, content_digest, body = answer
        # Docker names an image by its configuration or, with the containerd store, by its manifest.
        return local["Id"] in (content_digest, json.loads(body).get("config", {}).get("digest"))

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + 30
        while _get(port, "/v2/") is None:
            if time.monotonic() > deadline:
                raise TestbedError(f"The registry does not answer on port {port}", f"read docker logs {CONTAINER_NAME}")
            time.sleep(0.1)

    def _images(self) -> list[str]:
        return [str(name) for name in Images.NAMES.values()]

    def _image(self) -> Image:
        key = digest(1, _RECIPE.key, _CONFIG, _CONFIG_PATH)
        return Image(
            "holdfast-testbed/registry:2",
            key,
            partial(
                rootfs.extended,
                self.bed,
                "registry",
                key,
                partial(rootfs.debian, self.bed, self.name, _RECIPE),
                lambda archive: rootfs.add_text(archive, _CONFIG_PATH, _CONFIG),
            ),
        )

    def _keeper(self) -> ContainerKeeper:
        return ContainerKeeper(
            self.bed,
            Container(
                part=self.name,
                name=CONTAINER_NAME,
                image=self._image(),
                options=(),
                command=("docker-registry", "serve", f"/{_CONFIG_PATH}"),
                inner_port=PORT,
                volume=CONTAINER_NAME,
                volume_path="/var/lib/registry",
            ),
        )

    def stop(self) -> None:
        self._keeper().stop()

    def purge(self) -> None:
        self._keeper().purge()

    def version(self, section: RegistrySettings) -> str:
        said = self.machine.try_run(["docker", "exec", CONTAINER_NAME, "docker-registry", "--version"], timeout=10)
        return said.stdout.split()[-1] if said.code == 0 and said.stdout else "?"

    def address(self, section: RegistrySettings) -> str:
        return section["address"]


def _repository(image: str) -> str:
    """The name in the registry: official images live below library/."""
    return image if "/" in image else f"library/{image}"


def _get(port: int, path: str) -> tuple[int, str | None, bytes] | None:
    """Status, digest and body of an answer of the registry; None if there is none."""
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=5)) as connection:
        try:
            connection.request("GET", path, headers={"Accept": _MANIFEST})
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Docker-Content-Digest"), answer.read()
        except (OSError, http.client.HTTPException):
            return None

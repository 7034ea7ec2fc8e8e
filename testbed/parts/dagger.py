"""Dagger: the CLI, and the engine as a container, reachable by unix socket, by tcp and by name."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import tarfile
import time
from functools import partial
from pathlib import Path

from testbed.cache import digest
from testbed.core import TestbedError
from testbed.parts import dagger_build, registry, rootfs
from testbed.parts.base import Part
from testbed.parts.containers import NETWORK, Container, ContainerKeeper
from testbed.parts.docker import Docker
from testbed.parts.images import Image, import_image
from testbed.parts.rootfs import Recipe
from testbed.ports import LOOPBACK
from testbed.settings import DaggerSettings

CONTAINER_NAME = "holdfast-testbed-dagger"
SOCKET = Path("/run/holdfast-testbed/engine.sock")

_RECIPE = Recipe(
    "engine-base",
    (
        *("ca-certificates", "git", "pigz", "procps", "runc", "tini", "mount", "xz-utils"),
        *("dnsmasq-base", "iproute2", "iptables", "nftables"),
    ),
)
_INNER_PORT = 8080
# With the network's name behind it: the engine's resolver asks nobody about names without a dot.
_MIRROR = f"{registry.CONTAINER_NAME}.{NETWORK}:{registry.PORT}"
_CONFIG = {
    "registries": {"docker.io": {"mirrors": [_MIRROR]}, _MIRROR: {"http": True}},
    "security": {"insecureRootCapabilities": False},
    # The state must not grow for ever. minFreeSpace is small: by default the engine empties its cache after
    # every session while the disk is over 80 % full, whoever filled it.
    "gc": {"enabled": True, "reservedSpace": "4GB", "maxUsedSpace": "15GB", "minFreeSpace": "1GB"},
}
# Where the engine looks for its programs; it knows no other places.
_LINKS = {
    "usr/local/bin/runc": "/usr/sbin/runc",
    "usr/bin/buildctl": "dial-stdio",
    "usr/bin/xtables-legacy-multi": "/usr/sbin/xtables-legacy-multi",
    "usr/bin/xtables-nft-multi": "/usr/sbin/xtables-nft-multi",
}
_FILES = {
    "engine": "usr/local/bin/dagger-engine",
    "init": "usr/local/bin/dagger-init",
    "dialstdio": "usr/bin/dial-stdio",
    **{name: f"opt/cni/bin/{name}" for name in ("bridge", "loopback", "firewall", "host-local", "dnsname")},
}
# In the kernel's order: bit 0 first. Left out are the last three, which Docker 20.10 does not know.
_CAPABILITIES = """
    chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
    net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot
    sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease
    audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read
"""


class Dagger(Part[DaggerSettings]):
    name = "dagger"
    needs = ("docker", "images", "registry")

    def look(self) -> DaggerSettings:
        programs = dagger_build.find(self.bed)
        if programs is None:
            raise TestbedError("Dagger is not built yet", "call testbed/up dagger")
        port = self._keeper().port()
        if not _answers_on_socket():
            raise TestbedError(f"The Dagger engine does not answer on {SOCKET}", "call testbed/up dagger")
        if not _answers_on_port(port):
            raise TestbedError(f"The Dagger engine does not answer on port {port}", "call testbed/up dagger")
        return {
            "version": dagger_build.VERSION,
            "cli": str(programs / "dagger"),
            "hosts": {
                "unix": f"unix://{SOCKET}",
                "tcp": f"tcp://{LOOPBACK}:{port}",
                "container": f"container://{CONTAINER_NAME}",
            },
        }

    def prepare(self) -> None:
        dagger_build.programs(self.bed, self.name)

    def bring_up(self) -> None:
        host = Docker(self.bed).host()
        if not host.startswith("unix://"):
            raise TestbedError(
                f"Dagger's socket needs a Docker daemon on this machine, and DOCKER_HOST is {host}",
                "unset DOCKER_HOST",
            )
        self.machine.require_root("Starting the Dagger engine")
        import_image(self.bed, self.name, self._image())
        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        keeper = self._keeper()
        port = keeper.start()
        with self.report.step(self.name, "engine answers") as step:
            deadline = time.monotonic() + 90
            while not (_answers_on_socket() and _answers_on_port(port)):
                found = keeper.inspect()
                if found is not None and not found["State"]["Running"]:
                    raise TestbedError("The Dagger engine ended", f"read docker logs {CONTAINER_NAME}")
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"The Dagger engine does not answer on port {port} and on {SOCKET}",
                        f"read docker logs {CONTAINER_NAME}, or call testbed/down, then testbed/up",
                    )
                time.sleep(0.2)
            step.what = f"engine answers on {SOCKET} and port {port}"

    def _image(self) -> Image:
        build = dagger_build.key(self.bed)
        key = digest(1, _RECIPE.key, build, _CONFIG, _FILES, _LINKS)
        base = partial(rootfs.debian, self.bed, self.name, _RECIPE)
        return Image(
            f"holdfast-testbed/dagger-engine:{dagger_build.VERSION}",
            key,
            partial(rootfs.extended, self.bed, "engine", key, base, self._add_engine),
            (
                "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                'ENTRYPOINT ["tini", "--", "/usr/local/bin/dagger-engine"]',
            ),
        )

    def _add_engine(self, archive: tarfile.TarFile) -> None:
        programs = dagger_build.programs(self.bed, self.name)
        for name, path in _FILES.items():
            rootfs.add_tree(archive, programs / name, path)
        for path, target in _LINKS.items():
            rootfs.add_link(archive, path, target)
        rootfs.add_text(archive, "etc/dagger/engine.json", json.dumps(_CONFIG))

    def _keeper(self) -> ContainerKeeper:
        options = [word for name in capabilities() for word in ("--cap-add", name)]
        # Not --privileged: it asks for every capability, and such a machine's root lacks CAP_SYS_RESOURCE.
        options += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
        options += ["--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm"]
        options += ["--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--tmpfs", "/run"]
        options += ["--volume", f"{SOCKET.parent}:/run/dagger"]
        return ContainerKeeper(
            self.bed,
            Container(
                part=self.name,
                name=CONTAINER_NAME,
                image=self._image(),
                options=tuple(options),
                command=(
                    *("--addr", "unix:///run/dagger/engine.sock"),
                    # All addresses inside: Docker forwards from loopback outside to the container's own.
                    *("--addr", f"tcp://0.0.0.0:{_INNER_PORT}"),
                    # Network namespaces kept ready. Of the usual 128 each is taken apart when the engine
                    # stops, which takes half a minute.
                    *("--oci-cni-pool-size", "16"),
                ),
                inner_port=_INNER_PORT,
                volume=f"{CONTAINER_NAME}-state",
                volume_path="/var/lib/dagger",
            ),
        )

    def stop(self) -> None:
        self._keeper().stop()

    def purge(self) -> None:
        self._keeper().purge()

    def address(self, section: DaggerSettings) -> str:
        return " ".join(str(host) for host in section["hosts"].values())


def capabilities() -> list[str]:
    """The capabilities that this machine's root has and Docker knows."""
    status = Path("/proc/self/status").read_text()
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
    return [name for bit, name in enumerate(_CAPABILITIES.split()) if mask >> bit & 1]


def _answers_on_socket() -> bool:
    """Whether an engine speaks HTTP there; it answers a request that is no client's with an error."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(3)
        try:
            connection.connect(str(SOCKET))
            connection.sendall(b"GET /query HTTP/1.1\r\nHost: dagger\r\nConnection: close\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
        except OSError:
            return False


def _answers_on_port(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=3)) as connection:
        try:
            connection.request("GET", "/query")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
    return True

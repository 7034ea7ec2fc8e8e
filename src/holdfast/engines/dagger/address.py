"""Where the Dagger engine is: the operator's mode and DAGGER_HOST, checked before anything is started.

| mode | DAGGER_HOST |
|---|---|
| docker_socket | none: the Dagger CLI starts an engine on the Docker daemon; or `container://NAME`, `image://NAME` |
| sidecar | `tcp://HOST:PORT`, `unix:///PATH`, `container://NAME`, `kube-pod://POD?namespace=NS` |
| remote | `tcp://HOST:PORT`, `tls://HOST:PORT`, `ssh://USER@HOST`, `kube-pod://…`, `dagger-cloud://…` |

Without a mode, any DAGGER_HOST will do.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ...config import Settings
from ...errors import ConfigError

_CONTAINERS = ("docker", "podman", "nerdctl", "finch", "apple")
_ON_DAEMON = {"docker-image", "docker-container", "image", "container"} | {
    f"{kind}+{program}" for kind in ("image", "container") for program in _CONTAINERS
}
_SCHEMES = {"tcp", "tls", "unix", "ssh", "kube-pod", "dagger-cloud"} | _ON_DAEMON
_OF_MODE = {
    "docker_socket": _ON_DAEMON,
    "sidecar": {"tcp", "unix", "kube-pod"} | {scheme for scheme in _ON_DAEMON if "container" in scheme},
    "remote": {"tcp", "tls", "ssh", "kube-pod", "dagger-cloud"},
}
_PROBE_SECONDS = 3.0
NOT_SET = "no Dagger engine is configured"
FIX = (
    "set DAGGER_HOST to an engine (tcp://HOST:PORT, unix:///PATH, container://NAME), "
    "or STATION_SANDBOX_ENGINE_MODE=docker_socket to have one started on the Docker daemon"
)


@dataclass(frozen=True, slots=True)
class Address:
    """An engine. `host` is what the Dagger CLI takes as its runner host; None lets it start its own."""

    host: str | None
    mode: str | None

    @property
    def starts_one(self) -> bool:
        """Whether an engine may have to be made first: that takes minutes, not seconds."""
        return self.host is None or urlsplit(self.host).scheme.partition("+")[0].endswith("image")

    def __str__(self) -> str:
        return self.host or "an engine on the Docker daemon"

    def unreachable(self) -> str | None:
        """Why nobody is there, as far as one can tell without starting anything. Blocks for a moment."""
        if self.host is None:
            return (
                None if shutil.which("docker") else "Dagger starts engines by the docker command, which is not on PATH"
            )
        parts = urlsplit(self.host)
        if parts.scheme == "unix":
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
                probe.settimeout(_PROBE_SECONDS)
                try:
                    probe.connect(parts.path)
                except OSError as error:
                    return f"nothing answers on {self.host}: {error.strerror or error}"
        elif parts.scheme in ("tcp", "tls"):
            try:
                if parts.scheme == "tls":
                    from . import tls  # ssl takes long to import

                    reason = tls.problem(parts, _PROBE_SECONDS)
                    return f"no way to the engine at {self.host}: {reason}" if reason else None
                socket.create_connection((parts.hostname or "", parts.port or 0), _PROBE_SECONDS).close()
            except OSError as error:
                return f"nothing answers on {self.host}: {error.strerror or error}"
        elif parts.scheme in _ON_DAEMON and not shutil.which(_program(parts)):
            return f"the {_program(parts)} command is not on PATH, and Dagger reaches {self.host} by it"
        return None


def _program(parts: SplitResult) -> str:
    return parts.scheme.partition("+")[2].replace("apple", "container") or "docker"


def address(config: Settings) -> Address | None:
    """The engine that the settings name; None: they name none.

    Raises:
        ConfigError: they contradict each other, or make no sense.
    """
    mode, host = config.engine_mode, config.dagger_host
    if host is None:
        if mode in ("sidecar", "remote"):
            example = "tcp://dagger-engine:8080" if mode == "sidecar" else "tls://engine.example:8443"
            raise ConfigError(f"STATION_SANDBOX_ENGINE_MODE={mode} needs DAGGER_HOST, such as {example}")
        return Address(None, mode) if mode else None
    scheme, found, rest = host.partition("://")
    if not found:
        raise ConfigError(f"DAGGER_HOST={host}: it needs a scheme in front, such as tcp://{host}")
    if scheme in ("http", "https"):
        raise ConfigError(f"DAGGER_HOST={host}: say tcp://{rest} (or tls://{rest}); Dagger's protocol is its own")
    if scheme not in _SCHEMES:
        raise ConfigError(f"DAGGER_HOST={host}: {scheme} is not known; there are {', '.join(sorted(_SCHEMES))}")
    if mode and scheme not in _OF_MODE[mode]:
        fitting = ", ".join(name for name, schemes in _OF_MODE.items() if scheme in schemes)
        raise ConfigError(
            f"STATION_SANDBOX_ENGINE_MODE={mode} and DAGGER_HOST={host} contradict each other: "
            f"{scheme}:// is for {fitting}"
        )
    _check_place(host, scheme, rest)
    return Address(host, mode)


def _check_place(host: str, scheme: str, rest: str) -> None:
    if scheme == "unix" and not rest.startswith("/"):
        raise ConfigError(f"DAGGER_HOST={host}: a socket's path is absolute, as in unix:///run/dagger/engine.sock")
    if scheme in ("tcp", "tls"):
        try:
            complete = bool(urlsplit(host).hostname and urlsplit(host).port)
        except ValueError:
            complete = False
        if not complete:
            raise ConfigError(f"DAGGER_HOST={host}: it needs a host and a port, as in {scheme}://dagger-engine:8080")
    if not rest:
        raise ConfigError(f"DAGGER_HOST={host}: it names no engine")

"""What an agent's author may ask for, and every setting of the operator: all fields, all variables, in one place.

`Limits` is what a sandbox may use, `SandboxConfig` what the frontmatter of a prompt file asks for, `Settings` what the
operator decides. The table of all settings is docs/configuration.md, made from these models. Settings are read when
they are asked for, never at import: from the environment, then from a TOML file, then the defaults below.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from . import asked

if TYPE_CHECKING:
    from .sources import Sources

_YEAR = 365 * 86400
Positive = Annotated[int, Field(gt=0, le=1 << 53)]
Bytes = Annotated[int, Field(ge=0, le=1 << 53)]
Kept = Annotated[int, Field(ge=0, le=64 << 20)]
"""bytes of output; the guest keeps them in memory"""
Seconds = Annotated[float, Field(gt=0, le=_YEAR, allow_inf_nan=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Images = Annotated[tuple[Annotated[str, AfterValidator(asked.image)], ...], Field(strict=False)]
Variables = Annotated[tuple[Annotated[str, AfterValidator(asked.variable)], ...], Field(strict=False)]
Networks = Annotated[tuple[Annotated[str, AfterValidator(asked.network)], ...], Field(strict=False)]
Servers = Annotated[tuple[Annotated[str, AfterValidator(asked.nats_server)], ...], Field(strict=False)]
Grants = Annotated[tuple[Annotated[str, AfterValidator(asked.key_grant)], ...], Field(strict=False)]


class Limits(BaseModel):
    """What a sandbox may use. None: no limit is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mb: Positive | None = 512
    """memory of all processes, without the workspace"""
    processes: Positive | None = 256
    """processes and threads at once"""
    cpu_millicores: Positive | None = 2000
    workspace_mb: Positive | None = 512
    """bytes in the workspace, /tmp and home"""
    max_files: Positive | None = 100_000
    """files and folders in the workspace"""
    max_file_size_bytes: Positive | None = 256 << 20
    """one file, written by a program or through the API"""
    open_files: Positive | None = 4096
    """open files of one process"""


class SandboxLimits(BaseModel):
    """What this agent's sandbox may use. What is left out has a default; more than the operator allows is cut."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    cpu_millicores: Positive | None = None
    """CPU time per second, in thousandths of one core"""
    memory_mb: Positive | None = None
    """memory of all programs together"""
    timeout_seconds: Seconds | None = None
    """time of one run or command that names none itself"""
    workspace_mb: Positive | None = None
    """size of the workspace"""
    max_file_size_bytes: Positive | None = None
    """size of one file"""
    max_files: Positive | None = None
    """files and folders in the workspace"""


class SandboxNetwork(BaseModel):
    """Whether programs may use the network."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    enabled: bool = False
    """ask for network; the operator must allow it too"""


class SandboxConfig(BaseModel):
    """What an agent's author asks for: the value of `sandbox` in the frontmatter."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mode: Literal["compute", "code"] = "compute"
    """compute: each run in a fresh sandbox; code: one sandbox that is kept while agents work in it"""
    runtime: str | None = None
    """python, node or bash (also: linux, shell); in code mode also a container image such as golang:1.22"""
    image: Annotated[str, AfterValidator(asked.image)] | None = None
    """container image instead of the runtime's own; python, node and linux are short for these"""
    session: Annotated[str, AfterValidator(asked.session)] | None = None
    """code mode: default or workflow (shared by the workflow), isolated or agent (the agent's own), or a name"""
    timeout_seconds: Seconds | None = None
    """time of one run or command that names none itself"""
    max_stdout_bytes: Annotated[int, Field(gt=0, le=1 << 53)] | None = None
    """stdout that a result keeps"""
    allow_network: bool | None = None
    """ask for network; the operator must allow it too"""
    pip_packages: Annotated[tuple[Annotated[str, AfterValidator(asked.pip_package)], ...], Field(strict=False)] = ()
    """Python packages that are installed before a run"""
    npm_packages: Annotated[tuple[Annotated[str, AfterValidator(asked.npm_package)], ...], Field(strict=False)] = ()
    """Node packages that are installed before a run"""
    secrets: Variables = ()
    """names of secrets that programs get as environment variables; the operator must allow each"""
    cache: bool = False
    """compute mode: a run with the same code and files may return the result of an earlier one"""
    limits: SandboxLimits = SandboxLimits()
    network: SandboxNetwork | None = None

    @model_validator(mode="after")
    def _consistent(self) -> SandboxConfig:
        if found := asked.contradictions(self):
            text = "; ".join(f"{key}: {text}" for key, text in found)
            raise PydanticCustomError("contradiction", "{text}", {"text": text, "found": found})
        return self

    @property
    def runtime_name(self) -> str:
        """python, node or bash."""
        return asked.runtime_and_image(self)[0]

    @property
    def image_name(self) -> str | None:
        """The image that was asked for, as the allowlist spells it."""
        return asked.runtime_and_image(self)[1]

    @property
    def wants_network(self) -> bool:
        return bool(self.allow_network or (self.network and self.network.enabled))

    @property
    def timeout(self) -> float | None:
        return self.timeout_seconds if self.timeout_seconds is not None else self.limits.timeout_seconds

    @property
    def packages(self) -> tuple[str, ...]:
        return self.pip_packages + self.npm_packages


@dataclass(frozen=True, slots=True)
class Env:
    """The environment variable that gives a setting its value, and other names that are understood too."""

    name: str
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


class Settings(BaseModel):
    """The operator's settings. Each has a variable, and under its own name a key in the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # --- what is there at all
    enabled: Annotated[bool, Env("STATION_SANDBOX_ENABLED")] = True
    """false: no sandbox is made, and agents get no tools"""
    code_mode_enabled: Annotated[bool, Env("STATION_SANDBOX_CODE_MODE_ENABLED")] = True
    """false: no sessions; compute mode only"""
    engine: Annotated[str, Env("HOLDFAST_ENGINE")] = "auto"
    """engine to use when none is named"""
    allowed_engines: Annotated[Texts, Env("HOLDFAST_ALLOWED_ENGINES")] = ("*",)
    """engines that may be used, by name"""
    profile: Annotated[Literal["standard", "strict"], Env("HOLDFAST_PROFILE")] = "standard"
    """isolation of engines with images: standard or strict"""
    require_limits: Annotated[bool, Env("HOLDFAST_REQUIRE_LIMITS")] = False
    """true: where an engine cannot hold a limit, nothing runs; false: it runs, and the result says what is not held"""

    # --- what may be asked for; beyond it a request is refused
    allowed_images: Annotated[Images, Env("STATION_SANDBOX_ALLOWED_IMAGES")] = (
        "python:3.11-slim",
        "node:20-slim",
        "ubuntu:22.04",
    )
    """images that may be used"""
    allowed_runtimes: Annotated[Texts, Env("HOLDFAST_ALLOWED_RUNTIMES")] = ("python", "node", "bash")
    """runtimes that may be used"""
    allow_network: Annotated[bool, Env("STATION_SANDBOX_ALLOW_NETWORK_DEFAULT")] = False
    """whether a request for network is granted; without a request there is never any"""
    network_deny: Annotated[Networks, Env("HOLDFAST_NETWORK_DENY")] = (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "fe80::/10",
    )
    """what a sandbox with network cannot reach: private nets, and in them its neighbours and the machine beneath it; a
    cloud's metadata. Its resolver stays open, unless that is the machine itself or a metadata service. Held by docker;
    none: nothing is closed"""
    network_allow: Annotated[Networks, Env("HOLDFAST_NETWORK_ALLOW")] = ()
    """what it can reach all the same, such as 10.1.2.3/32; of two that hold an address, the narrower one counts"""
    allowed_packages: Annotated[Texts, Env("HOLDFAST_ALLOWED_PACKAGES")] = ("*",)
    """packages that may be installed, as patterns: pandas, types-*, npm:@scope/*, pip:*. All by default: nothing of a
    package runs while it is installed, and it then runs without network"""
    allowed_secrets: Annotated[Variables, Env("HOLDFAST_ALLOWED_SECRETS")] = ()
    """variables of this process that an agent may be given by name, as secrets; they are masked wherever they appear"""
    pass_env: Annotated[Variables, Env("HOLDFAST_PASS_ENV")] = ()
    """variables of this process that every sandbox gets; nothing else of the environment passes"""

    # --- time and amounts; beyond it a request is cut
    default_timeout: Annotated[Seconds, Env("STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS")] = 120
    """a run or an exec without a timeout of its own"""
    max_timeout: Annotated[Seconds, Env("HOLDFAST_MAX_TIMEOUT_SECONDS")] = 3600
    """longest timeout of a run or an exec"""
    max_stdout_bytes: Annotated[Kept, Env("STATION_SANDBOX_MAX_STDOUT_BYTES")] = 200_000
    """stdout that a result keeps"""
    max_stderr_bytes: Annotated[Kept, Env("STATION_SANDBOX_MAX_STDERR_BYTES")] = 200_000
    """stderr that a result keeps"""
    max_artifact_bytes: Annotated[Bytes, Env("STATION_SANDBOX_MAX_ARTIFACT_BYTES")] = 10_000_000
    """artifacts of one run, together"""
    max_artifacts_count: Annotated[Bytes, Env("STATION_SANDBOX_MAX_ARTIFACTS_COUNT")] = 100
    """files that one run returns"""
    max_memory_mb: Annotated[Positive | None, Env("HOLDFAST_MAX_MEMORY_MB")] = 8192
    """memory of all programs of a sandbox"""
    max_cpu_millicores: Annotated[Positive | None, Env("HOLDFAST_MAX_CPU_MILLICORES")] = 8000
    """CPU time per second, in thousandths of one core"""
    max_processes: Annotated[Positive | None, Env("HOLDFAST_MAX_PROCESSES")] = 4096
    """processes and threads at once"""
    max_workspace_mb: Annotated[Positive | None, Env("HOLDFAST_MAX_WORKSPACE_MB")] = 8192
    """size of a workspace"""
    max_files: Annotated[Positive | None, Env("HOLDFAST_MAX_FILES")] = 1_000_000
    """files and folders in a workspace"""
    max_file_size_bytes: Annotated[Positive | None, Env("HOLDFAST_MAX_FILE_SIZE_BYTES")] = 4 << 30
    """size of one file"""
    max_open_files: Annotated[Positive | None, Env("HOLDFAST_MAX_OPEN_FILES")] = 65536
    """open files of one process"""

    # --- sessions
    idle_timeout: Annotated[
        Seconds, Env("SANDBOX_SESSION_IDLE_TIMEOUT", also=("SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS",))
    ] = 1800
    """a session without a request and without a running exec ends; a request for more is cut"""
    max_lifetime: Annotated[
        Seconds, Env("SANDBOX_SESSION_MAX_LIFETIME", also=("SANDBOX_SESSION_MAX_LIFETIME_SECONDS",))
    ] = 4 * 3600
    """a session ends, whatever it does; a request for more is cut"""
    keep_for: Annotated[
        Annotated[float, Field(ge=0, le=_YEAR, allow_inf_nan=False)],
        Env("SANDBOX_SESSION_KEEP_FOR_SECONDS", also=("SANDBOX_SESSION_KEEP_FOR",)),
    ] = 0
    """how long a session stays after its workflow ended"""

    # --- places
    compute_workdir: Annotated[str, AfterValidator(asked.workdir), Env("HOLDFAST_COMPUTE_WORKDIR")] = "/work"
    """working directory of a run"""
    code_workdir: Annotated[str, AfterValidator(asked.workdir), Env("HOLDFAST_CODE_WORKDIR")] = "/workspace"
    """workspace of a session"""
    docker_host: Annotated[str | None, Env("DOCKER_HOST")] = None
    """the Docker daemon; else the one of this machine"""
    engine_mode: Annotated[Literal["docker_socket", "sidecar", "remote"] | None, Env("STATION_SANDBOX_ENGINE_MODE")] = (
        None
    )
    """where the Dagger engine is: docker_socket (a container of the Docker daemon), sidecar or remote (at DAGGER_HOST);
    else sidecar when DAGGER_HOST is set, and docker_socket when it is not"""
    dagger_host: Annotated[str | None, Env("DAGGER_HOST", also=("_EXPERIMENTAL_DAGGER_RUNNER_HOST",))] = None
    """the Dagger engine, such as tcp://dagger-engine:8080"""
    dagger_max_parallel_runs: Annotated[Positive, Env("HOLDFAST_DAGGER_MAX_PARALLEL_RUNS")] = 4
    """runs at once on one Dagger engine; more wait"""
    dagger_recycle_after_runs: Annotated[Positive, Env("HOLDFAST_DAGGER_RECYCLE_AFTER_RUNS")] = 200
    """a connection to the Dagger engine is made anew after so many runs"""
    dagger_cgroup_parent: Annotated[str | None, Env("HOLDFAST_DAGGER_CGROUP_PARENT")] = None
    """cgroup of the Dagger engine beneath which runs get limits of their own"""

    # --- staging: an object store through which large files come and go
    nats_url: Annotated[Servers, Env("HOLDFAST_NATS_URL")] = ()
    """servers of the NATS Object Store for staging, such as nats://nats:4222 or tls://nats:4222; none: no staging"""
    nats_user: Annotated[str | None, Env("HOLDFAST_NATS_USER")] = None
    """user there; the password is in HOLDFAST_NATS_PASSWORD"""
    nats_creds_file: Annotated[str | None, Env("HOLDFAST_NATS_CREDS")] = None
    """credentials file, with a JWT and a seed"""
    nats_nkey_file: Annotated[str | None, Env("HOLDFAST_NATS_NKEY")] = None
    """file with the seed of an nkey"""
    nats_ca_file: Annotated[str | None, Env("HOLDFAST_NATS_CA")] = None
    """certificates that the server's must come from, as PEM; else those that this machine trusts"""
    nats_cert_file: Annotated[str | None, Env("HOLDFAST_NATS_CERT")] = None
    """certificate to show to the server, as PEM"""
    nats_key_file: Annotated[str | None, Env("HOLDFAST_NATS_KEY")] = None
    """key of that certificate, as PEM"""
    staging_bucket: Annotated[str, AfterValidator(asked.bucket), Env("HOLDFAST_STAGING_BUCKET")] = "holdfast"
    """bucket for staged files; made when it is missing"""
    staging_prefix: Annotated[str, AfterValidator(asked.key_prefix), Env("HOLDFAST_STAGING_PREFIX")] = ""
    """what all keys of workflows and agents begin with, such as prod/"""
    staging_read: Annotated[Grants, Env("HOLDFAST_STAGING_READ")] = ()
    """what every agent may read beside the files of its own workflow: shared/, or BUCKET:PREFIX of another bucket"""
    staging_write: Annotated[Grants, Env("HOLDFAST_STAGING_WRITE")] = ()
    """what every agent may write beside the files of its own workflow, in the same form"""
    staging_max_bytes: Annotated[Positive, Env("HOLDFAST_STAGING_MAX_BYTES")] = 4 << 30
    """size of one staged file"""
    staging_ttl: Annotated[Seconds | None, Env("HOLDFAST_STAGING_TTL")] = 7 * 86400
    """how long a staged file stays, in a bucket that Holdfast makes; none: until it is deleted"""
    staging_timeout: Annotated[Seconds, Env("HOLDFAST_STAGING_TIMEOUT")] = 30
    """a store that does not answer for so long is given up"""


OTHER_VARIABLES = {
    "HOLDFAST_CONFIG": "the operator's TOML file, instead of the one of this user or of the system",
    "HOLDFAST_STATE_DIR": "where `local` keeps its sessions; else a folder of this user",
    "HOLDFAST_OWNER_KEY": "signs the labels of containers; processes that share sessions need the same one; "
    "else a file of this user",
    "HOLDFAST_WORKFLOW": "`--workflow` of the command line",
    "HOLDFAST_AGENT": "`--agent` of the command line",
    "HOLDFAST_SESSION": "`--session` of the command line",
    "HOLDFAST_NATS_PASSWORD": "password for `nats_user`; no setting, so that nothing shows it",
    "HOLDFAST_NATS_TOKEN": "token for NATS, instead of a user",
    "HOLDFAST_MCP_TOKEN": "what clients of `holdfast mcp --http` show; no option, so that no list of processes has it",
    "NO_COLOR": "the command line writes without colours",
}
"""Variables that are no settings of a sandbox."""


def variables() -> dict[str, Env]:
    """setting -> its variables"""
    return {
        name: next(mark for mark in field.metadata if isinstance(mark, Env))
        for name, field in Settings.model_fields.items()
    }


_NAMES = tuple(name for env in variables().values() for name in env.names)
_WATCHED = (*_NAMES, "HOLDFAST_CONFIG", "XDG_CONFIG_HOME", "HOME")
_RAW_WATCHED = tuple(map(os.fsencode, _WATCHED))
_cached: tuple[Any, Sources] | None = None


def settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that hold now. Quick, unless something changed.

    Raises:
        ConfigError: all mistakes, each with its variable, or its file and key, and what may be written there.
    """
    return sources(environ).settings


def sources(environ: Mapping[str, str] | None = None) -> Sources:
    """The settings, and where each comes from.

    Raises:
        ConfigError: see `settings`.
    """
    global _cached  # noqa: PLW0603  the last answer; a race costs a second reading, nothing more
    if environ is not None:
        from .sources import read

        return read(environ)
    # This is on the path of every run. os.environ's own `get` takes 1 µs for each of the names; its dict does not.
    raw = getattr(os.environ, "_data", None)
    now = tuple(map(raw.get, _RAW_WATCHED)) if isinstance(raw, dict) else tuple(map(os.environ.get, _WATCHED))
    if _cached is None or _cached[0] != now or not _cached[1].current():
        from .sources import read

        _cached = (now, read(os.environ))
    return _cached[1]

"""Every limit and every setting, in one place. Settings are read when asked for, never at import.

| environment variable | default | meaning |
|---|---|---|
| STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS | 120 | a run or an exec without a timeout of its own |
| STATION_SANDBOX_MAX_STDOUT_BYTES | 200000 | stdout that a result keeps |
| STATION_SANDBOX_MAX_STDERR_BYTES | 200000 | stderr that a result keeps |
| STATION_SANDBOX_MAX_ARTIFACT_BYTES | 10000000 | artifacts of one run, together |
| STATION_SANDBOX_MAX_ARTIFACTS_COUNT | 100 | files that one run returns |
| STATION_SANDBOX_ALLOWED_IMAGES | python:3.11-slim,node:20-slim,ubuntu:22.04 | images that may be used, by comma |
| STATION_SANDBOX_ALLOW_NETWORK_DEFAULT | false | whether a request for network is granted |
| SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS | 1800 | a session without a request and without a running exec ends |
| SANDBOX_SESSION_MAX_LIFETIME_SECONDS | 86400 | a session ends, whatever it does |
| HOLDFAST_PROFILE | standard | isolation of engines with images: standard or strict |
| HOLDFAST_ENGINE | auto | engine to use when none is named |
| HOLDFAST_STATE_DIR | per user | where `local` keeps its sessions |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from . import errors

Positive = Annotated[int, Field(gt=0)]


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


class Settings(BaseModel):
    """The operator's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default_timeout: Annotated[float, Field(gt=0, le=86400)] = 120
    max_stdout_bytes: Annotated[int, Field(ge=0, le=64 << 20)] = 200_000
    max_stderr_bytes: Annotated[int, Field(ge=0, le=64 << 20)] = 200_000
    max_artifact_bytes: Annotated[int, Field(ge=0)] = 10_000_000
    max_artifacts_count: Annotated[int, Field(ge=0)] = 100
    allow_network: bool = False
    allowed_images: tuple[str, ...] = ("python:3.11-slim", "node:20-slim", "ubuntu:22.04")
    profile: Literal["standard", "strict"] = "standard"
    idle_timeout: Annotated[float, Field(gt=0)] = 1800
    max_lifetime: Annotated[float, Field(gt=0)] = 86400
    engine: str = "auto"


_VARIABLES = {
    "STATION_SANDBOX_DEFAULT_TIMEOUT_SECONDS": "default_timeout",
    "STATION_SANDBOX_MAX_STDOUT_BYTES": "max_stdout_bytes",
    "STATION_SANDBOX_MAX_STDERR_BYTES": "max_stderr_bytes",
    "STATION_SANDBOX_MAX_ARTIFACT_BYTES": "max_artifact_bytes",
    "STATION_SANDBOX_MAX_ARTIFACTS_COUNT": "max_artifacts_count",
    "STATION_SANDBOX_ALLOWED_IMAGES": "allowed_images",
    "STATION_SANDBOX_ALLOW_NETWORK_DEFAULT": "allow_network",
    "HOLDFAST_PROFILE": "profile",
    "SANDBOX_SESSION_IDLE_TIMEOUT_SECONDS": "idle_timeout",
    "SANDBOX_SESSION_MAX_LIFETIME_SECONDS": "max_lifetime",
    "HOLDFAST_ENGINE": "engine",
}


def settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process's environment.

    Raises:
        ConfigError: names the variable and what it may hold.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {field: environ[name] for name, field in _VARIABLES.items() if environ.get(name)}
    if "allowed_images" in given:
        given["allowed_images"] = tuple(filter(None, map(str.strip, given["allowed_images"].split(","))))
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        variable = next(name for name, field in _VARIABLES.items() if field == first["loc"][0])
        raise errors.ConfigError(f"{variable}={environ[variable]!r}: {first['msg']}") from error

"""How tests find the engines: through the file that `testbed/up` writes, never by guessing.

    docker = require("docker")      # its section of .testbed.json, or the test is skipped with the reason

With CI=true a missing engine is a failure.
"""

from __future__ import annotations

import os
from typing import Literal, NoReturn, cast, overload

import pytest

from testbed import settings
from testbed.settings import (
    BubblewrapSettings,
    DaggerSettings,
    DockerSettings,
    ImageSettings,
    NatsSettings,
    RegistrySettings,
    Section,
)


@overload
def require(part: Literal["docker"]) -> DockerSettings: ...
@overload
def require(part: Literal["images"]) -> ImageSettings: ...
@overload
def require(part: Literal["registry"]) -> RegistrySettings: ...
@overload
def require(part: Literal["dagger"]) -> DaggerSettings: ...
@overload
def require(part: Literal["nats"]) -> NatsSettings: ...
@overload
def require(part: Literal["bubblewrap"]) -> BubblewrapSettings: ...


def require(part: str) -> Section:
    """The settings of a part that is up; ends the test if it is not."""
    found = settings.read()
    if found is None:
        without(f"The testbed is not up. Next: call testbed/up {part}.")
    section = cast("Section | None", found.get(part))
    if section is None:
        why = f"testbed/up did not bring {part} up. Next: call testbed/up {part}."
        without(found.get("missing", {}).get(part, why))
    return section


def without(reason: str) -> NoReturn:
    """What a test needs is missing: it is skipped with the reason, and with CI=true it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

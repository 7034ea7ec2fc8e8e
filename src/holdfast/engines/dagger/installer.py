"""Packages as a layer of their own: made with network, once, and reused by all runs that ask for the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ... import errors
from ...compute.packages import INSTALLERS, NODE_FOLDER
from .query import QueryFailed
from .session import DaggerSession, leaf, telling

_INSTALL_SECONDS = 900.0
# What the operator may set for installers. Addresses may hold a password, so all of it goes in as secrets.
_ENVIRONMENT = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "NPM_CONFIG_REGISTRY"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
# Certificates of the operator's own, where the way to the packages goes through a proxy that has some.
_CERTIFICATES = ("NODE_EXTRA_CA_CERTS", "PIP_CERT", "SSL_CERT_FILE")
_BUNDLE = "/.holdfast-certificates.pem"


async def with_packages(session: DaggerSession, bare: str, runtime: str, packages: tuple[str, ...]) -> str:
    """The id of a container with the packages in it.

    Raises:
        PackagesFailed: in the installer's own words.
    """
    variables: dict[str, Any] = {"bare": bare, "args": [*INSTALLERS[runtime], *packages]}
    parameters = "$bare: ContainerID!, $args: [String!]!"
    # A failure must not be cached, so it has to be one for the engine too: no `expect`.
    chain = "withExec(args: $args) { sync }"
    if runtime == "node":
        chain = f'withSymlink(target: "{NODE_FOLDER}/node_modules", linkName: "/node_modules") {{ {chain} }}'
    for number, name in enumerate(name for name in _ENVIRONMENT if os.environ.get(name)):
        # One cache key for all values: an address with a new password gives the same packages.
        variables[f"s{number}"] = await session.secret(f"env://{name}", f"holdfast-installer-{name}")
        chain = f'withSecretVariable(name: "{name}", secret: $s{number}) {{ {chain} }}'
        parameters += f", $s{number}: ID!"
    if bundle := _certificates():
        variables["bundle"] = await session.host_file(bundle)
        for name in _CERTIFICATES:
            chain = f'withEnvVariable(name: "{name}", value: "{_BUNDLE}") {{ {chain} }}'
        chain = f'withMountedFile(path: "{_BUNDLE}", source: $bundle) {{ {chain} }}'
        parameters += ", $bundle: ID!"
    # pip of a Debian asks for this, and others do not mind.
    chain = f'withEnvVariable(name: "PIP_BREAK_SYSTEM_PACKAGES", value: "1") {{ {chain} }}'
    text = f"query({parameters}) {{ loadContainerFromID(id: $bare) {{ {chain} }} }}"
    try:
        return leaf(await session.query(text, variables, _INSTALL_SECONDS))
    except QueryFailed as error:
        said = telling(error.stderr or error.message)
        raise errors.PackagesFailed(f"{', '.join(packages)} could not be installed: {said}") from error
    except TimeoutError:
        late = f"{', '.join(packages)} were not installed within {_INSTALL_SECONDS:.0f} s"
        raise errors.PackagesFailed(late) from None


def _certificates() -> Path | None:
    named = (Path(os.environ[name]) for name in _CERTIFICATES if os.environ.get(name))
    return next((path for path in named if path.is_file()), None)

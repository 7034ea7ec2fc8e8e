"""Packages of a language for a run: names that are names, and how they are installed.

They become a layer of their own, made with network and reused; the code then runs without. Nothing of a package
runs while it is installed: wheels only, and no install scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InvalidRequest

_MAX_PACKAGES = 100
_PIP = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"(?:\[[A-Za-z0-9._,-]+\])?"  # extras
    r"(?:(?:[=!<>~]=|===|<|>)[A-Za-z0-9.*+!_-]+(?:,(?:[=!<>~]=|<|>)[A-Za-z0-9.*+!_-]+)*)?"  # versions
)
_NPM = re.compile(
    r"(?P<name>(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*)"  # with its scope
    r"(?:@[A-Za-z0-9.*+^~<>=_-]+)?"  # version or tag
)
NODE_FOLDER = "/opt/holdfast-node"
"""`/node_modules` leads here: modules are looked for beside the program and upwards, by `import` and `require` alike"""
INSTALLERS: dict[str, list[str]] = {
    "python": [
        *("python3", "-m", "pip", "install", "--no-input", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
        *("--only-binary", ":all:", "--"),
    ],
    "node": [
        # --prefix would move the global settings too, where an image says which registry it uses
        *("npm", "install", "--prefix", NODE_FOLDER, "--globalconfig", "/usr/local/etc/npmrc"),
        *("--no-save", "--no-package-lock", "--ignore-scripts"),
        *("--no-audit", "--no-fund", "--loglevel", "error", "--"),
    ],
}
"""runtime -> the installer's command; the packages come after it"""


def checked_packages(runtime: str, packages: Sequence[str]) -> tuple[str, ...]:
    """The packages, each once, in one order: so that one set is one layer.

    Raises:
        InvalidRequest: not a name with a version; options, addresses and paths are none.
    """
    if not packages:
        return ()
    if runtime not in INSTALLERS:
        raise InvalidRequest(f"there are no packages for {runtime}; python has pip's, node has npm's")
    if len(packages) > _MAX_PACKAGES:
        raise InvalidRequest(f"{len(packages)} packages are too many; at most {_MAX_PACKAGES}")
    pattern, example = (_PIP, "pandas==2.2.3") if runtime == "python" else (_NPM, "lodash@4.17.21")
    for package in packages:
        if not pattern.fullmatch(package):
            raise InvalidRequest(f"{package!r} is not a package of {runtime}; say {example}, for example")
    return tuple(sorted(set(packages)))


def package_name(runtime: str, package: str) -> str | None:
    """The name alone, in the registry's own spelling: what an operator's patterns are about."""
    found = (_PIP if runtime == "python" else _NPM).fullmatch(package)
    if found is None:
        return None
    return re.sub(r"[-_.]+", "-", found["name"]).lower() if runtime == "python" else found["name"]

"""The toolset, or a session, in the form of a framework. Thin: what a tool does is in the toolset.

One module for each, imported when it is asked for: none of the frameworks is a dependency of ours, each is an extra.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def load(name: str) -> ModuleType:
    """The adapter of this name.

    Raises:
        ImportError: its framework is not installed; says how to.
    """
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        extra = name.replace("_", "-")
        raise ImportError(
            f"the package {error.name} is not installed; next: pip install 'holdfast[{extra}]'", name=error.name
        ) from error

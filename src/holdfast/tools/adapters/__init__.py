"""The toolset, or a session, in the form of a framework. Thin: what a tool does is in the toolset.

One module for each, imported when it is asked for: none of the frameworks is a dependency of ours, each is an extra.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def load(name: str) -> ModuleType:
    """The adapter of this name.

    Raises:
        ImportError: its framework is not installed; says how to.
    """
    with brought_by(name.replace("_", "-")):
        return importlib.import_module(f".{name}", __name__)


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Around the import of a framework that an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the package {error.name} is not installed; next: pip install 'holdfast[{extra}]'", name=error.name
        ) from error

"""The engines, by name. Each is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..abc import Mode
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..abc import Engine

ENGINES = {
    "local": "holdfast.engines.local.engine:LocalEngine",
    "docker": "holdfast.engines.docker.engine:DockerEngine",
    "dagger": "holdfast.engines.dagger.engine:DaggerEngine",
    "fake": "holdfast.engines.fake:FakeEngine",
}
"""name -> where its class is"""

AUTOMATIC = {
    Mode.COMPUTE: ("dagger", "docker", "local"),
    Mode.CODE: ("docker", "local"),
}
"""what `auto` tries, best first; `fake` runs nothing and is only used by name"""

_made: dict[str, Engine] = {}


def engine(name: str) -> Engine:
    """The engine of this name: one object for the process.

    Raises:
        InvalidRequest: there is no such engine.
    """
    if name not in ENGINES:
        raise InvalidRequest(f"there is no engine {name!r}; there are {', '.join(['auto', *ENGINES])}")
    if name not in _made:
        module, _, attribute = ENGINES[name].partition(":")
        _made[name] = getattr(importlib.import_module(module), attribute)()
    return _made[name]


@contextmanager
def installed(made: Engine) -> Iterator[None]:
    """While the block runs, `made` is the engine of its name. For tests."""
    before = _made.get(made.name)
    _made[made.name] = made
    try:
        yield
    finally:
        if before is None:
            _made.pop(made.name, None)
        else:
            _made[made.name] = before

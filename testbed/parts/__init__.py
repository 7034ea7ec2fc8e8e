"""The parts, in the order in which they stand on each other.

    docker ── images ── registry ── dagger
    nats      bubblewrap

Each part is one file and one class: `look` tells what is there, `bring_up` does what is missing.
"""

from __future__ import annotations

from typing import Any

from testbed.parts.base import Bed, Part
from testbed.parts.bubblewrap import Bubblewrap
from testbed.parts.dagger import Dagger
from testbed.parts.docker import Docker
from testbed.parts.images import Images
from testbed.parts.nats import Nats
from testbed.parts.registry import Registry

PARTS: tuple[type[Part[Any]], ...] = (Bubblewrap, Nats, Docker, Images, Registry, Dagger)


def with_needs(names: list[str]) -> list[str]:
    """The named parts and all that they need, in order; all parts for an empty list."""
    by_name = {part.name: part for part in PARTS}
    wanted = set(names or by_name)
    while more := {need for name in wanted for need in by_name[name].needs} - wanted:
        wanted |= more
    return [part.name for part in PARTS if part.name in wanted]


__all__ = ["PARTS", "Bed", "Part", "with_needs"]

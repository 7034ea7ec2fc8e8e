"""The contract of a part: look, prepare, bring up, stop, forget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from testbed.cache import Cache
from testbed.core import Report
from testbed.machine import Machine
from testbed.ports import Ports
from testbed.settings import Section

SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True)
class Bed:
    """What every part works with."""

    machine: Machine
    cache: Cache
    report: Report

    @property
    def ports(self) -> Ports:
        return Ports(self.machine, self.cache.run)


class Part(ABC, Generic[SectionT]):
    """One thing that the testbed brings up.

    A part finds what it depends on through the machine (the Docker daemon, its containers), not through the
    memory of other parts, so that `look` is true in any process and after any crash.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Parts that must be up before `bring_up`."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.machine = bed.machine
        self.cache = bed.cache
        self.report = bed.report

    @abstractmethod
    def look(self) -> SectionT:
        """The part's section of the settings if it is up and complete. Quick, changes nothing.

        Raises:
            TestbedError: it is not, with the reason.
        """

    def prepare(self) -> None:
        """Slow work that needs no other part; runs beside everything else, and only when `look` failed."""

    @abstractmethod
    def bring_up(self) -> None:
        """Does what is missing. `prepare` has run and what it `needs` is up; afterwards `look` succeeds."""

    def stop(self) -> None:
        """Stops what the testbed started, and nothing else."""

    def purge(self) -> None:
        """Deletes what the testbed made outside its cache. Runs before `stop`."""

    def version(self, section: SectionT) -> str:
        return str(section.get("version", ""))

    @abstractmethod
    def address(self, section: SectionT) -> str:
        """Where it is, for the table of `testbed/status`."""

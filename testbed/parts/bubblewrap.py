"""bubblewrap: one program from one package."""

from __future__ import annotations

from testbed.core import TestbedError
from testbed.parts.base import Part
from testbed.parts.packages import apt_install
from testbed.settings import BubblewrapSettings


class Bubblewrap(Part[BubblewrapSettings]):
    name = "bubblewrap"

    def look(self) -> BubblewrapSettings:
        path = self.machine.which("bwrap")
        if path is None:
            raise TestbedError("bubblewrap is not installed", "call testbed/up bubblewrap")
        said = self.machine.try_run([path, "--version"], timeout=10)
        if said.code != 0:
            raise TestbedError(f"bubblewrap does not run: {said.last_line}", "reinstall the package bubblewrap")
        return {"path": path, "version": said.stdout.split()[-1]}

    def bring_up(self) -> None:
        apt_install(self.bed, self.name, ["bubblewrap"])

    def address(self, section: BubblewrapSettings) -> str:
        return section["path"]

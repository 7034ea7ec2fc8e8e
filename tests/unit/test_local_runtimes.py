"""What of the host a sandbox may see, for the sake of its runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.local import runtimes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own, with node somewhere in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.defpath", "/nowhere")
    runtimes.host_runtimes.cache_clear()
    yield tmp_path
    runtimes.host_runtimes.cache_clear()


def put_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "node").write_text("#!/bin/sh\n")
    (folder / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize("place", ["bin", ".", "node-v20"])
def test_a_program_that_lies_in_the_home_opens_nothing_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    put_node(home / place, monkeypatch)
    assert "node" not in runtimes.host_runtimes()
    assert not [folder for folder in runtimes.foreign_folders() if folder.is_relative_to(home)]


@pytest.mark.parametrize("prefix", [".nvm/versions/node/v20", ".local"])
def test_a_runtime_with_a_folder_of_its_own_opens_its_programs_and_libraries(
    home: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    put_node(home / prefix / "bin", monkeypatch)
    for name in ("lib", "share"):
        (home / prefix / name).mkdir()
    mine = [folder for folder in runtimes.foreign_folders() if folder.is_relative_to(home)]
    assert mine == [home / prefix / "bin", home / prefix / "lib"]
    assert str(home / prefix / "bin") in runtimes.search_path().split(":")

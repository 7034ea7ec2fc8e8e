"""Root file systems as tar files: Debian packages by mmdebstrap, plus files appended."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import digest
from testbed.core import TestbedError
from testbed.machine import CODENAME
from testbed.parts.base import Bed
from testbed.parts.packages import apt_install, apt_reason, apt_sources

_EPOCH = 1767225600  # 2026-01-01: time stamps do not depend on when it is made

_LOCAL_AUTHORITIES = Path("/usr/local/share/ca-certificates")  # where Debian's administrators put them

# What a slim image leaves out, by dpkg, so that it is never unpacked.
_SLIM = tuple(
    f"--dpkgopt=path-{rule}"
    for rule in (
        "exclude=/usr/share/man/*",
        "exclude=/usr/share/locale/*",
        "exclude=/usr/share/doc/*",
        "include=/usr/share/doc/*/copyright",
        "exclude=/usr/share/info/*",
    )
)


@dataclass(frozen=True)
class Recipe:
    """What goes into a root file system made of Debian packages."""

    name: str
    packages: tuple[str, ...]
    remove: tuple[str, ...] = ()
    """Paths below / deleted at the end, shell patterns allowed."""
    local_authorities: bool = False
    """Whether programs in there trust the certificate authorities that were added to this machine, so that
    pip and npm reach their registries through a proxy. Needs the package ca-certificates."""

    @property
    def key(self) -> str:
        return digest(2, CODENAME, _SLIM, _EPOCH, self.packages, self.remove, *self.authorities)

    @property
    def authorities(self) -> list[Path]:
        return sorted(_LOCAL_AUTHORITIES.glob("*.crt")) if self.local_authorities else []


def debian(bed: Bed, part: str, recipe: Recipe) -> Path:
    """The tar file of a recipe, from the cache or made now.

    Raises:
        TestbedError: no root, not Debian, no disk space, or a package registry that refuses.
    """

    def make(work: Path) -> Path:
        bed.machine.require_root("Making images")
        bed.machine.require_debian("Making images")
        bed.machine.require_disk(bed.cache.root, 2, "Making images")
        apt_install(bed, part, ["mmdebstrap"])
        with bed.report.step(part, f"{recipe.name} made of Debian packages"):
            return _mmdebstrap(bed, recipe, work)

    return bed.cache.get(f"{recipe.name}.tar@{recipe.key}", make)


def _mmdebstrap(bed: Bed, recipe: Recipe, work: Path) -> Path:
    work.chmod(0o755)  # apt drops root for downloads and must get in
    text = apt_sources(bed.machine.root / "etc/apt")
    # mmdebstrap takes the style of a file from its name.
    sources = work / ("debian.sources" if text.lower().lstrip().startswith("types:") else "debian.list")
    sources.write_text(text)
    made = work / "root.tar"
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(recipe.packages)}", *_SLIM]
    if recipe.authorities:
        files = " ".join(map(str, recipe.authorities))
        argv += [f"--customize-hook=copy-in {files} {_LOCAL_AUTHORITIES}"]
        argv += ['--customize-hook=chroot "$1" update-ca-certificates']
    argv += [f'--customize-hook=rm -rf "$1"/{path}' for path in recipe.remove]
    argv += [CODENAME, str(made), str(sources)]
    env = {"SOURCE_DATE_EPOCH": str(_EPOCH), "TMPDIR": str(work), "LC_ALL": "C"}
    said = bed.machine.try_run(argv, timeout=1200, env=env)
    if said.code != 0:
        raise TestbedError(
            f"mmdebstrap could not make {recipe.name}: {apt_reason(said)}",
            "check the machine's apt sources and its network, then call testbed/up again",
        )
    return made


def extended(bed: Bed, name: str, key: str, base: Callable[[], Path], add: Callable[[tarfile.TarFile], None]) -> Path:
    """The tar file `base` with files appended to it, from the cache or made now."""

    def make(work: Path) -> Path:
        made = work / "root.tar"
        shutil.copyfile(base(), made)
        with tarfile.open(made, "a", format=tarfile.GNU_FORMAT) as archive:
            add(archive)
        return made

    return bed.cache.get(f"{name}.tar@{key}", make)


def add_text(archive: tarfile.TarFile, path: str, text: str, mode: int = 0o644) -> None:
    info = _info(path, mode)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def add_link(archive: tarfile.TarFile, path: str, target: str) -> None:
    info = _info(path, 0o777)
    info.type = tarfile.SYMTYPE
    info.linkname = target
    archive.addfile(info)


def add_tree(archive: tarfile.TarFile, source: Path, path: str) -> None:
    """A file, or a directory with all below it, owned by root, as `path` in the archive."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = _EPOCH
        return info

    archive.add(source, f"./{path}", filter=plain)


def _info(path: str, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"./{path}")
    info.mode = mode
    info.mtime = _EPOCH
    return info

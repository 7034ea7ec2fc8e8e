"""The command line of one sandbox: what it can see, and what it can write to.

The launcher joins the cgroups, mounts one tmpfs with a limit on bytes and on files, and becomes bubblewrap:

    guest launch ── bwrap ── guest (PID 1 of the sandbox) ── supervisors ── programs

Inside, everything is read-only but that tmpfs: the workspace, /tmp, the home folder and /dev/shm share its limits.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ...abc import SandboxSpec
from ...guest.protocol import GuestConfig, GuestLimits
from . import runtimes
from .cgroups import GUEST_TASKS, Cgroup

USER = 65532
"""uid and gid of programs; a root caller's guest becomes it, an ordinary user's namespace maps it"""
HOME = "/home/sandbox"

_FOLDERS = ("workspace", "home", "shm", "tmp")
"""folders of the tmpfs"""

_path_of = functools.cache(shutil.which)


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a command line depends on."""

    spec: SandboxSpec
    guest: Path
    state: Path
    cgroup: Cgroup | None
    listen_fd: int | None
    """None: one run, over stdin and stdout"""
    info_fd: int | None

    def command(self) -> list[str]:
        root = os.geteuid() == 0
        limits = self.spec.limits
        options = ["mode=0755"]
        if limits.workspace_mb is not None:
            options.append(f"size={limits.workspace_mb}m")
        if limits.max_files is not None:
            options.append(f"nr_inodes={limits.max_files + 8}")
        plan = {
            "unshare": root,
            "join": [str(path) for path in self.cgroup.join] if self.cgroup else [],
            "mount": str(self.state / "mnt"),
            "options": ",".join(options),
            "folders": _FOLDERS,
            "owner": USER if root else None,
            "command": [_path_of("bwrap"), *self._bubblewrap(root)],
        }
        # An ordinary user gets a namespace to mount in only with one of users, and a program with threads gets none.
        namespaces = [] if root else [_path_of("unshare") or "unshare", "--mount", "--map-root-user", "--"]
        return [*namespaces, str(self.guest), "launch", json.dumps(plan)]

    def _bubblewrap(self, root: bool) -> list[str]:
        mount = self.state / "mnt"
        arguments = [
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        if root:
            # No user namespace: the guest leaves root for good, so tenants have an unprivileged uid of the kernel.
            arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            arguments += ["--unshare-user", "--disable-userns", "--uid", str(USER), "--gid", str(USER)]
            arguments += ["--cap-drop", "ALL"]
        arguments += ["--hostname", "sandbox", "--as-pid-1", "--new-session", "--clearenv"]
        if self.listen_fd is None:
            arguments += ["--die-with-parent"]
        if self.info_fd is not None:
            arguments += ["--info-fd", str(self.info_fd)]
        foreign = runtimes.foreign_folders()
        arguments += _folders(Path("/.holdfast/x"), Path(HOME), Path(self.spec.workspace), *foreign)
        arguments += [*_system(), *_etc(self.state)]
        for folder in foreign:
            arguments += ["--ro-bind", str(folder), str(folder)]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--bind", str(mount / "shm"), "/dev/shm"]
        arguments += ["--remount-ro", "/dev", "--bind", str(mount / "tmp"), "/tmp"]
        arguments += [
            "--bind",
            str(mount / "home"),
            HOME,
            "--bind",
            str(mount / "workspace"),
            self.spec.workspace,
        ]
        arguments += ["--ro-bind", str(self.guest), "/.holdfast/guest"]
        if self.cgroup:
            arguments += ["--ro-bind", str(self.cgroup.memory_events), "/.holdfast/memory.events"]
            arguments += ["--ro-bind", str(self.cgroup.pids_events), "/.holdfast/pids.events"]
        arguments += ["--remount-ro", "/", "--chdir", "/", "--", "/.holdfast/guest"]
        # "-": the config comes on stdin. Everybody on this machine can read a command line, and env may hold secrets.
        return [*arguments, "run" if self.listen_fd is None else "serve", "-"]

    def config(self) -> GuestConfig:
        spec, limits, root = self.spec, self.spec.limits, os.geteuid() == 0
        held = self.cgroup is not None
        return GuestConfig(
            workspace=spec.workspace,
            listen_fd=self.listen_fd,
            user=USER if root else None,
            idle_timeout_ms=_ms(spec.idle_timeout),
            max_lifetime_ms=_ms(spec.max_lifetime),
            env=environment(spec.env),
            limits=GuestLimits(
                open_files=limits.open_files,
                file_bytes=limits.max_file_size_bytes,
                processes=None if held or limits.processes is None else limits.processes + GUEST_TASKS,
                data_bytes=None if held or limits.memory_mb is None else limits.memory_mb << 20,
                files=limits.max_files,
            ),
            network=spec.network,
            memory_events="/.holdfast/memory.events" if held else None,
            pids_events="/.holdfast/pids.events" if held else None,
        )


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Built from nothing: the host's own variables stay on the host."""
    return {
        "PATH": runtimes.search_path(),
        "HOME": HOME,
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        # Output counts when it was written, also if the program is killed a moment later.
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _folders(*paths: Path) -> list[str]:
    """The folders above these, open to programs: bubblewrap would make them for their owner alone, who is root."""
    above = {parent for path in paths for parent in path.parents if parent != Path("/")}
    return [word for folder in sorted(above) for word in ("--perms", "0755", "--dir", str(folder))]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def _etc(state: Path) -> list[str]:
    """What programs look for in /etc; nothing that tells of this machine's users or secrets."""
    arguments = ["--ro-bind", str(state / "etc"), "/etc"]
    for name in ETC_OF_HOST:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


ETC_OF_HOST = ("alternatives", "ld.so.cache", "localtime", "mime.types")
"""bound onto what is empty in the state folder, and stays so where the host has none"""


ETC = {
    "passwd": f"root:x:0:0:root:/:/sbin/nologin\nsandbox:x:{USER}:{USER}:sandbox:{HOME}:/bin/sh\n",
    "group": f"root:x:0:\nsandbox:x:{USER}:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

"""Describes the machine of a measurement: what a reader needs to judge its numbers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import anyio
from _measure import ROOT
from _report import Machine

from holdfast.engines import engine
from testbed import settings

ENGINES = ("local", "docker", "dagger")


def said(*argv: str) -> str:
    """What a program prints, or nothing where it cannot be had."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def point_to_the_testbed() -> None:
    """Dagger's variables, where the caller has none: the engine that `testbed/up` brought up."""
    found = settings.read()
    if found and "dagger" in found and "DAGGER_HOST" not in os.environ:
        os.environ["DAGGER_HOST"] = os.environ["_EXPERIMENTAL_DAGGER_RUNNER_HOST"] = found["dagger"]["hosts"]["unix"]
        os.environ["_EXPERIMENTAL_DAGGER_CLI_BIN"] = found["dagger"]["cli"]


def engines() -> tuple[dict[str, str], dict[str, str]]:
    """Those that work here with their versions, and why the others do not."""

    async def look() -> tuple[dict[str, str], dict[str, str]]:
        there: dict[str, str] = {}
        missing: dict[str, str] = {}
        for name in ENGINES:
            status = await engine(name).check()
            (there if status.available else missing)[name] = status.version if status.available else status.reason
        return there, missing

    return anyio.run(look)


def commit() -> str:
    changed = said("git", "status", "--porcelain", "--untracked-files=no")
    return (said("git", "rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else "")


def _field(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.replace("=", ":", 1).partition(":")
        if name.strip() == key:
            return value.strip().strip('"')
    return ""


def describe(versions: dict[str, str]) -> Machine:
    tools = {"runc": said("runc", "--version").partition("\n")[0].removeprefix("runc version ")}
    if shutil.which("docker"):
        tools["docker storage"] = said("docker", "info", "--format", "{{.Driver}}, cgroup {{.CgroupVersion}}")
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=os.cpu_count() or 0,
        memory_mb=int(_field("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        kernel=platform.release(),
        system=_field("/etc/os-release", "PRETTY_NAME"),
        python=platform.python_version(),
        load_before=round(os.getloadavg()[0], 2),
        versions={**versions, **{name: version for name, version in tools.items() if version}},
    )

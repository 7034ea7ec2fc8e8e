"""Dagger's engine and CLI, built from the Go module proxy.

Some of Dagger's modules are not served by the proxy at the versions its go.mod names. Most have a published
neighbour (see `replace` in go.mod.txt); `dagger-build/` stands in for the rest: distconsts (paths), tuist
(the CLI's interactive UI, drawn as nothing), go-libsecret and Dang v2 (say that they are not in this build).
What runs containers, caches and serves the API is upstream's, unchanged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed.cache import digest, files_below
from testbed.core import TestbedError
from testbed.machine import Output
from testbed.parts.base import Bed
from testbed.parts.go import choose, find_go

VERSION = "v0.21.8"

_SOURCES = Path(__file__).resolve().parent.parent / "dagger-build"
_DAGGER = "github.com/dagger/dagger"
_CNI = "github.com/containernetworking/plugins/plugins"
_PROGRAMS = (
    *(f"{_DAGGER}/cmd/{name}" for name in ("engine", "dagger", "init", "dnsname", "dialstdio")),
    *(f"{_CNI}/{name}" for name in ("main/bridge", "main/loopback", "meta/firewall", "ipam/host-local")),
)
_OVERLAY = {
    "dangv2_sdk.go": f"{_DAGGER}/core/sdk/dang/v2/sdk.go",
    "dangv2_helpers.go": f"{_DAGGER}/core/sdk/dang/v2/helpers.go",
    "libsecret.go": f"{_DAGGER}/engine/client/secretprovider/libsecret.go",
    "otel_pending.go": "github.com/dagger/otel-go/pending.go",
}
_FLAGS = ("-mod=vendor", "-trimpath", "-ldflags")
_LDFLAGS = f"-s -w -X {_DAGGER}/engine.Version={VERSION} -X {_DAGGER}/engine.Tag={VERSION}"


def key(bed: Bed) -> str:
    """Changes with anything that goes into the build."""
    sources = files_below(_SOURCES)
    names = [str(path.relative_to(_SOURCES)) for path in sources]
    return digest(1, choose(bed)[1], names, _PROGRAMS, _OVERLAY, _FLAGS, _LDFLAGS, *sources)


def programs(bed: Bed, part: str) -> Path:
    """The directory with the built programs, from the cache or built now: 5 minutes on two cores.

    Raises:
        TestbedError: no disk space, or a module that the proxy refuses.
    """

    def make(work: Path) -> Path:
        bed.machine.require_amd64("Building Dagger")
        bed.machine.require_disk(bed.cache.root, 5, "Building Dagger")
        go = find_go(bed, part)
        what = f"engine and CLI {VERSION} built with Go {choose(bed)[1]}"
        with bed.report.step(part, what, expect="about 5 minutes"):
            return _build(bed, go, work)

    return bed.cache.get(_name(bed), make)


def find(bed: Bed) -> Path | None:
    """The programs if they were built before. Never builds, and needs no network."""
    return bed.cache.find(_name(bed))


def _name(bed: Bed) -> str:
    return f"dagger-{VERSION}@{key(bed)}"


def _build(bed: Bed, go: str, work: Path) -> Path:
    tree, out = work / "src", work / "out"
    shutil.copytree(_SOURCES, tree)
    out.mkdir()
    for name in ("go.mod", "go.sum"):  # kept as .txt, or Go tools would take the folder for a module of ours
        (tree / f"{name}.txt").rename(tree / name)
    env = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0"}
    # -e: one package, which only a test of the CLI imports, is not served. So the status says nothing.
    vendored = bed.machine.try_run(["nice", go, "mod", "vendor", "-e"], timeout=1200, env=env, cwd=tree)
    for name, target in _OVERLAY.items():
        directory = (tree / "vendor" / target).parent
        if not directory.is_dir():
            raise _refused(vendored)
        shutil.copyfile(tree / "overlay" / name, tree / "vendor" / target)
    argv = ["nice", go, "build", *_FLAGS, _LDFLAGS, "-o", f"{out}/", *_PROGRAMS]
    built = bed.machine.try_run(argv, timeout=3600, env=env, cwd=tree)
    if built.code != 0:
        missing = "cannot find module" in built.stderr or "no required module" in built.stderr
        if missing or "inconsistent vendoring" in built.stderr:
            raise _refused(vendored)
        raise TestbedError(f"Dagger could not be built: {built.last_line}", "call testbed/up dagger again")
    return out


def _refused(vendored: Output) -> TestbedError:
    # The last lines are about the package that is never served; the first reason is the real one.
    said = [line.strip() for line in vendored.stderr.splitlines() if "downloading" not in line]
    reason = next((line for line in said if ": " in line), vendored.last_line)
    return TestbedError(
        f"The Go module proxy did not give all of Dagger's modules: {reason}",
        "check go env GOPROXY and the network, then call testbed/up again",
    )

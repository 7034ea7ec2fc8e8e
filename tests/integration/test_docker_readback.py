"""What the daemon made is compared with what it was asked for, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Limits, aio, errors
from holdfast.engines import installed
from holdfast.engines.docker import readback
from holdfast.engines.docker.about import About
from holdfast.engines.docker.engine import DockerEngine

from .daemons import container_of, edited, ours, relay, socket_of

pytestmark = [pytest.mark.engines, pytest.mark.anyio]

INFO = {
    "OSType": "linux",
    "Architecture": "x86_64",
    "ServerVersion": "27.0.1",
    "CgroupVersion": "2",
    "MemTotal": 8 << 30,
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]],
}


async def test_what_is_asked_for_is_what_the_daemon_has(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PROFILE", "strict")
    async with aio.open_session(engine="docker", limits=Limits(memory_mb=300, processes=50)) as box:
        host = container_of(daemon, box).attrs["HostConfig"]
        assert box.effective.limits["memory_mb"] == 300
        assert box.effective.limits["processes"] == 50
        assert host["Memory"] == host["MemorySwap"] > (300 + box.effective.limits["workspace_mb"]) << 20
        assert 50 < host["PidsLimit"] < 50 + 200
        assert host["RestartPolicy"]["Name"] == "no"
        assert not host["Init"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("PidsLimit", 0),
        ("Memory", 100 << 20),
        ("NetworkMode", "bridge"),
        ("SecurityOpt", []),
        ("CapAdd", ["SYS_ADMIN"]),
        ("Tmpfs", {}),
        ("Privileged", True),
        ("Binds", ["/:/host"]),
        ("CpuQuota", 0),
        ("LogConfig", {"Type": "json-file", "Config": {}}),
    ],
)
async def test_a_daemon_that_does_something_else_gets_no_program(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, field: str, value: Any
) -> None:
    """A relay changes the request on its way: to us, that is a daemon which does not do as it is told."""

    async def change(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        if not head.startswith(b"POST /containers/create"):
            return head, body
        return edited(head, body, lambda asked: asked["HostConfig"].update({field: value}))

    async with relay(socket_of(daemon), change) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        with installed(DockerEngine()), pytest.raises(errors.LimitsNotAvailable, match=field):
            async with aio.open_session(engine="docker"):
                pass
    assert not ours(daemon)


def test_a_warning_of_the_daemon_is_heard() -> None:
    readback.check({"Memory": 5}, {"Memory": 5}, None)
    readback.check({"Memory": 5}, {"Memory": 5}, [])
    with pytest.raises(errors.LimitsNotAvailable, match="kernel does not support"):
        readback.check({"Memory": 5}, {"Memory": 5}, ["Your kernel does not support swap limit capabilities"])


def test_spellings_are_no_differences() -> None:
    asked = {"CapAdd": ["KILL", "CHOWN"], "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}], "CapDrop": ["ALL"]}
    found = {"CapAdd": ["CAP_CHOWN", "CAP_KILL"], "Ulimits": [{"Name": "core"}], "CapDrop": ["ALL"], "Binds": []}
    readback.check(asked, found, None)
    with pytest.raises(errors.LimitsNotAvailable, match="CapAdd"):
        readback.check(asked, {**found, "CapAdd": ["CAP_CHOWN"]}, None)
    with pytest.raises(errors.LimitsNotAvailable, match="Devices"):
        readback.check(asked, {**found, "Devices": [{"PathOnHost": "/dev/kvm"}]}, None)


# --- what the daemon says of itself


def test_limits_that_a_kernel_lacks_are_refused() -> None:
    About.parse(INFO).require(Limits())
    weak = About.parse({**INFO, "PidsLimit": False, "CpuCfsQuota": False})
    assert weak.lacks == ("pids", "cpu")
    with pytest.raises(errors.LimitsNotAvailable, match="pids"):
        weak.require(Limits())
    weak.require(Limits(processes=None, cpu_millicores=None))


def test_a_workspace_larger_than_the_machine_is_refused() -> None:
    About.parse(INFO).require(Limits(workspace_mb=8000))
    with pytest.raises(errors.LimitsNotAvailable, match="workspace_mb"):
        About.parse(INFO).require(Limits(workspace_mb=9000))


@pytest.mark.parametrize(
    ("driver", "backing", "quota"),
    [("overlay2", "extfs", False), ("overlay2", "xfs", True), ("btrfs", "", False), ("vfs", "xfs", False)],
)
def test_which_storage_may_bound_the_root_file_system(driver: str, backing: str, quota: bool) -> None:
    status = [["Backing Filesystem", backing], ["Supports d_type", "true"]] if backing else None
    assert About.parse({**INFO, "Driver": driver, "DriverStatus": status}).quota is quota


def test_a_daemon_without_a_guest_for_it() -> None:
    for wrong in ({"OSType": "windows"}, {"Architecture": "s390x"}):
        with pytest.raises(errors.EngineUnavailable, match="amd64 and linux/arm64"):
            About.parse({**INFO, **wrong})


async def test_limits_that_do_not_hold_in_full_can_be_refused(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = About.parse
    monkeypatch.setattr(About, "parse", lambda info: real({**info, "SwapLimit": False}))
    with installed(DockerEngine()):
        async with aio.open_session(engine="docker") as box:
            assert "without swap" in box.effective.not_held["memory_mb"]
        monkeypatch.setenv("HOLDFAST_REQUIRE_LIMITS", "true")
        with pytest.raises(errors.LimitsNotAvailable, match="memory_mb"):
            async with aio.open_session(engine="docker"):
                pass
        monkeypatch.setenv("HOLDFAST_PROFILE", "strict")  # in `standard` the root file system has no limit here
        async with aio.open_session(engine="docker", limits=Limits(memory_mb=None)) as box:
            assert box.effective.not_held == {}


async def test_a_quota_that_the_storage_refuses_is_said_to_be_missing(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the storage is ext4: the daemon refuses the option, and the workspace's own limit holds all the same."""
    real = About.parse
    monkeypatch.setattr(About, "parse", lambda info: real({**info, "DriverStatus": [["Backing Filesystem", "xfs"]]}))
    with installed(engine := DockerEngine()):
        assert "without limit" not in (await engine.check()).reason
        async with aio.open_session(engine="docker", limits=Limits(workspace_mb=8)) as box:
            assert "no quotas" in box.effective.not_held["root_file_system_mb"]
            assert "root_file_system_mb" not in box.effective.held_by
            assert "without limit" in (await engine.check()).reason
            filled = await box.exec("head -c 20000000 /dev/zero > big")
            assert not filled.ok
            assert (await box.stat("big")).size_bytes <= 8 << 20
        monkeypatch.setenv("HOLDFAST_PROFILE", "strict")
        async with aio.open_session(engine="docker") as box:
            assert box.effective.not_held == {}
            assert not (await box.exec("echo > /usr/x")).ok

"""The testbed's answers to a machine that lacks something. No engine is needed, and nothing is installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest

from testbed import main, settings
from testbed.cache import GENERATIONS, Cache
from testbed.core import Report, TestbedError
from testbed.daemon import Daemon, command_of, start_time
from testbed.machine import Machine, Output
from testbed.parts import Bed, Part, with_needs
from testbed.parts.bubblewrap import Bubblewrap
from testbed.parts.dagger_build import programs
from testbed.parts.docker import Docker
from testbed.parts.go import is_good, parse_version
from testbed.parts.images import Images
from testbed.parts.packages import apt_install, apt_sources, wheel
from testbed.ports import DEFAULTS, Ports
from testbed.settings import BubblewrapSettings
from tests.testbed import require

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n'
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n'
PLENTY = 10**12


class Commands:
    """Answers commands by their first word or two, and remembers them."""

    def __init__(self, answers: Mapping[str, Output]) -> None:
        self.answers = answers
        self.seen: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None, cwd: Path | None) -> Output:
        line = " ".join([Path(argv[0]).name, *argv[1:]])
        self.seen.append(line)
        for start, output in self.answers.items():
            if line.startswith(start):
                return output
        return Output(127, "", f"{argv[0]}: not there")


def bed(
    tmp_path: Path,
    commands: Commands,
    *,
    euid: int = 0,
    system: str = DEBIAN,
    free_bytes: int = PLENTY,
    environ: Mapping[str, str] | None = None,
) -> Bed:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "usr/sbin").mkdir(parents=True)
    (root / "var/run").mkdir(parents=True)
    (root / "etc/os-release").write_text(system)
    machine = Machine(
        euid=euid,
        root=root,
        free_bytes=lambda _: free_bytes,
        environ=environ or {"PATH": os.environ["PATH"]},
        runner=commands,
    )
    cache = Cache(tmp_path / "cache")
    for directory in (cache.built, cache.tmp, cache.run):
        directory.mkdir(parents=True)
    return Bed(machine, cache, Report(StringIO()))


def not_installed(**answers: Output) -> Commands:
    return Commands({"dpkg-query": Output(1, "", "no packages found"), **answers})


# ---- what the machine lacks


@pytest.mark.parametrize(
    ("lack", "says", "next_step"),
    [
        ({"euid": 1000}, "needs root, and this is uid 1000", "sudo"),
        ({"system": UBUNTU}, "needs Debian 12 (bookworm), and this is Ubuntu 24.04 LTS", "by hand"),
        ({"system": ""}, "this is an unknown system", "by hand"),
        ({"free_bytes": 10**8}, "needs 1 GB of disk space", "HOLDFAST_TESTBED_CACHE"),
    ],
)
def test_a_lack_is_one_sentence_with_a_next_step_and_nothing_is_begun(
    tmp_path: Path, lack: dict[str, Any], says: str, next_step: str
) -> None:
    commands = not_installed()
    with pytest.raises(TestbedError) as caught:
        apt_install(bed(tmp_path, commands, **lack), "x", ["bubblewrap"])
    assert says in caught.value.what
    assert "\n" not in str(caught.value)
    assert next_step in caught.value.next_step
    assert not any(line.startswith(("apt-get", "dpkg ")) for line in commands.seen)


def test_what_is_installed_needs_neither_root_nor_debian(tmp_path: Path) -> None:
    commands = Commands({"dpkg-query": Output(0, "installed", "")})
    apt_install(bed(tmp_path, commands, euid=1000, system=UBUNTU), "x", ["bubblewrap"])
    assert not any(line.startswith("apt-get") for line in commands.seen)


def test_packages_are_installed_when_nothing_is_lacking(tmp_path: Path) -> None:
    commands = not_installed(**{"dpkg --configure": Output(0, "", ""), "apt-get": Output(0, "", "")})
    apt_install(bed(tmp_path, commands), "x", ["bubblewrap"])
    assert [line.split()[-1] for line in commands.seen if line.startswith("apt-get")] == ["bubblewrap"]
    assert not any("update" in line.split() for line in commands.seen)  # the lists were good enough


# ---- registries that refuse


def test_an_apt_registry_that_refuses_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    refusal = Output(100, "", "W: something\nE: Unable to locate package bubblewrap\n")
    one = bed(tmp_path, not_installed(**{"apt-get": refusal}))
    with pytest.raises(TestbedError, match="Unable to locate package bubblewrap") as caught:
        apt_install(one, "x", ["bubblewrap"])
    assert "apt sources" in caught.value.next_step
    assert not (one.machine.root / "usr/sbin/policy-rc.d").exists()


def test_a_pypi_that_refuses_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    class Pip(Commands):
        def __call__(self, argv: Sequence[str], *rest: Any) -> Output:
            if "download" in argv:
                return Output(1, "", "ERROR: No matching distribution found for nothing==1\n")
            return Output(0, "pip 1", "")

    one = bed(tmp_path, Pip({}))
    with pytest.raises(TestbedError, match="No matching distribution"):
        wheel(one, "x", "nothing==1", tmp_path)
    assert list(one.cache.tmp.iterdir()) == []


def test_a_go_proxy_that_refuses_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    vendored = "go: downloading x v1\ngo: example.com/x@v1: reading proxy: 403 Forbidden\ngo: other\n"
    commands = Commands(
        {"go version": Output(0, "go version go1.26.8 linux/amd64", ""), "nice": Output(1, "", vendored)}
    )
    one = bed(tmp_path, commands, environ={"PATH": str(fake_program(tmp_path, "go").parent)})
    with pytest.raises(TestbedError, match="403 Forbidden") as caught:
        programs(one, "dagger")
    assert "GOPROXY" in caught.value.next_step
    assert list(one.cache.built.iterdir()) == []
    assert list(one.cache.tmp.iterdir()) == []


def test_no_disk_space_for_dagger_is_told_before_the_build(tmp_path: Path) -> None:
    commands = Commands({"go version": Output(0, "go version go1.26.8 linux/amd64", "")})
    path = str(fake_program(tmp_path, "go").parent)
    with pytest.raises(TestbedError, match="5 GB of disk space"):
        programs(bed(tmp_path, commands, environ={"PATH": path}, free_bytes=10**9), "dagger")
    assert not any(line.startswith("nice") for line in commands.seen)


def fake_program(tmp_path: Path, name: str) -> Path:
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


# ---- ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_replaced_and_the_new_one_remembered(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEFAULTS, "nats", taken)
    ports = Ports(Machine(environ={}), tmp_path)
    chosen = ports.choose("nats")
    assert chosen != taken
    assert ports.used("nats") == chosen
    assert ports.choose("nats") == chosen


def test_a_free_port_is_taken_as_asked(tmp_path: Path, taken: int) -> None:
    free = Ports(Machine(environ={}), tmp_path).choose("nats")
    assert Ports(Machine(environ={"HOLDFAST_TESTBED_NATS_PORT": str(free)}), tmp_path).choose("nats") == free


@pytest.mark.parametrize("asked", ["taken", "0", "65536", "http"])
def test_a_port_that_was_asked_for_and_cannot_be_had_is_an_error(tmp_path: Path, taken: int, asked: str) -> None:
    value = str(taken) if asked == "taken" else asked
    with pytest.raises(TestbedError) as caught:
        Ports(Machine(environ={"HOLDFAST_TESTBED_NATS_PORT": value}), tmp_path).choose("nats")
    assert "HOLDFAST_TESTBED_NATS_PORT" in caught.value.next_step or "unset" in caught.value.next_step


def test_a_part_on_another_port_than_asked_does_not_count_as_up(tmp_path: Path) -> None:
    ports = Ports(Machine(environ={"HOLDFAST_TESTBED_NATS_PORT": "4222"}), tmp_path)
    ports.check("nats", 4222)
    with pytest.raises(TestbedError):
        ports.check("nats", 4223)
    Ports(Machine(environ={}), tmp_path).check("nats", 4223)


# ---- a daemon that does not answer


def test_a_docker_daemon_that_does_not_answer_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Docker, "patience", 0.5)
    commands = Commands({"docker version": Output(124, "", "docker gave no answer within 10 s")})
    one = bed(tmp_path, commands)
    silent = tmp_path / "dockerd"
    shutil.copy("/bin/sleep", silent)
    process = subprocess.Popen([silent, "60"])
    try:
        while command_of(process.pid) != "dockerd":  # the kernel names it a moment after it has started
            time.sleep(0.01)
        (one.machine.root / "var/run/docker.pid").write_text(str(process.pid))
        with pytest.raises(TestbedError, match="does not answer") as caught:
            Docker(one).bring_up()
        assert str(process.pid) in caught.value.next_step
        assert process.poll() is None
        assert not any(line.startswith("apt-get") for line in commands.seen)
    finally:
        process.kill()
        process.wait()


def test_a_docker_host_that_does_not_answer_is_named(tmp_path: Path) -> None:
    commands = Commands({"docker version": Output(1, "", "connection refused")})
    path = str(fake_program(tmp_path, "docker").parent)
    one = bed(tmp_path, commands, environ={"PATH": path, "DOCKER_HOST": "tcp://127.0.0.1:1"})
    with pytest.raises(TestbedError, match=r"tcp://127\.0\.0\.1:1") as caught:
        Docker(one).bring_up()
    assert "DOCKER_HOST" in caught.value.next_step


# ---- daemons of our own


def test_a_daemon_is_known_again_and_stopped(tmp_path: Path) -> None:
    daemon = Daemon("sleeper", tmp_path)
    daemon.start(["sleep", "60"], answers=lambda: True, timeout=5, environ=os.environ)
    pid = Daemon("sleeper", tmp_path).pid
    assert pid is not None
    assert daemon.stop(grace=5)
    assert start_time(pid) is None
    assert not daemon.stop(grace=5)


def test_a_stale_record_never_names_a_strangers_process(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        record = {"pid": stranger.pid, "started": "an earlier boot:1"}
        (tmp_path / "sleeper.json").write_text(json.dumps(record))
        daemon = Daemon("sleeper", tmp_path)
        assert daemon.pid is None
        assert not daemon.stop(grace=1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_daemon_that_ends_at_once_says_why(tmp_path: Path) -> None:
    daemon = Daemon("broken", tmp_path)
    with pytest.raises(TestbedError, match="port in use") as caught:
        daemon.start(
            ["sh", "-c", "echo port in use >&2; exit 3"],
            answers=lambda: False,
            timeout=10,
            environ=os.environ,
        )
    assert str(daemon.log) in caught.value.next_step
    assert daemon.pid is None


# ---- the cache


def test_a_result_is_made_once_and_a_failed_one_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.locked(Report(StringIO())):

        def fail(work: Path) -> Path:
            (work / "half").write_text("half")
            raise TestbedError("no", "more")

        with pytest.raises(TestbedError):
            cache.get("thing@1", fail)
        assert cache.find("thing@1") is None
        assert list(cache.tmp.iterdir()) == []

        def make(work: Path) -> Path:
            (work / "whole").write_text("whole")
            return work / "whole"

        assert cache.get("thing@1", make).read_text() == "whole"
        assert cache.get("thing@1", fail).read_text() == "whole"


def test_only_some_results_of_the_same_thing_are_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.locked(Report(StringIO())):

        def make(work: Path) -> Path:
            (work / "file").write_text("")
            return work / "file"

        for key in range(GENERATIONS + 2):
            os.utime(cache.get(f"thing@{key}", make), (key, key))
        cache.get("other@1", make)
        assert cache.find("thing@0") is None
        assert cache.find(f"thing@{GENERATIONS + 1}")
        assert cache.find("other@1")


def test_what_a_killed_call_left_is_swept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.locked(Report(StringIO())):
        pass
    (cache.tmp / "left" / "over").mkdir(parents=True)
    with cache.locked(Report(StringIO())):
        assert list(cache.tmp.iterdir()) == []


def test_a_second_call_waits_and_says_so(tmp_path: Path) -> None:
    said = StringIO()
    order: list[str] = []

    def second() -> None:
        with Cache(tmp_path).locked(Report(said)):
            order.append("second")

    thread = threading.Thread(target=second)
    with Cache(tmp_path).locked(Report(StringIO())):
        thread.start()
        while "waiting for another call" not in said.getvalue():
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert str(os.getpid()) in said.getvalue()


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TestbedError) as caught, Cache(tmp_path / "file" / "cache").locked(Report(StringIO())):
        pass
    assert "HOLDFAST_TESTBED_CACHE" in caught.value.next_step


# ---- parts together


class Good(Part[BubblewrapSettings]):
    name = "good"
    up: ClassVar[bool] = False

    def look(self) -> BubblewrapSettings:
        if not type(self).up:
            raise TestbedError("not yet", "bring it up")
        return {"path": "/good", "version": "1"}

    def bring_up(self) -> None:
        type(self).up = True

    def address(self, section: BubblewrapSettings) -> str:
        return section["path"]


class Bad(Good):
    name = "bad"

    def bring_up(self) -> None:
        raise TestbedError("It cannot be had", "do without")


class OnBad(Good):
    name = "on-bad"
    needs = ("bad",)


@pytest.fixture
def small_testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_TESTBED_CACHE", str(tmp_path / "cache"))
    for part in (Good, Bad, OnBad):
        monkeypatch.setattr(part, "up", False)
    for module in (main, __import__("testbed.parts").parts):
        monkeypatch.setattr(module, "PARTS", (Good, Bad, OnBad))
    monkeypatch.setattr(main, "NAMES", ["good", "bad", "on-bad"])
    path = tmp_path / "settings.json"
    write = settings.write
    monkeypatch.setattr(settings, "write", lambda found: write(found, path))
    return path


def test_a_part_that_cannot_be_had_does_not_stop_the_others(
    small_testbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.up([]) == 1
    written = settings.read(small_testbed)
    assert written is not None
    assert written.get("good") == {"path": "/good", "version": "1"}
    assert written["missing"]["bad"] == "It cannot be had. Next: do without."
    assert "bad is missing" in written["missing"]["on-bad"]
    assert "bad is missing. It cannot be had. Next: do without." in capsys.readouterr().err


def test_all_that_was_asked_for_is_success(small_testbed: Path) -> None:
    assert main.up(["good"]) == 0


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.up(["dokcer"])
    assert caught.value.code == 2
    assert "no part is called dokcer: there are bubblewrap, nats, docker" in capsys.readouterr().err


def test_parts_come_with_what_they_need() -> None:
    assert with_needs(["bubblewrap"]) == ["bubblewrap"]
    assert with_needs(["dagger"]) == ["docker", "images", "registry", "dagger"]


def test_bubblewrap_that_is_there_is_used(tmp_path: Path) -> None:
    program = fake_program(tmp_path, "bwrap")
    commands = Commands({"bwrap --version": Output(0, "bubblewrap 0.8.0\n", "")})
    one = bed(tmp_path, commands, environ={"PATH": str(program.parent)})
    assert Bubblewrap(one).look() == {"path": str(program), "version": "0.8.0"}


def test_an_image_that_is_not_ours_is_used(tmp_path: Path) -> None:
    foreign = Output(0, json.dumps([{"Id": "sha256:1", "Config": {"Labels": None}}]), "")
    assert Images(bed(tmp_path, Commands({"docker image inspect": foreign}))).look() == Images.NAMES


def test_an_image_of_ours_from_another_recipe_is_not(tmp_path: Path) -> None:
    old = Output(0, json.dumps([{"Id": "sha256:1", "Config": {"Labels": {"holdfast.testbed.key": "old"}}}]), "")
    with pytest.raises(TestbedError):
        Images(bed(tmp_path, Commands({"docker image inspect": old}))).look()


# ---- reading the machine


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ("go version go1.26.8 linux/amd64", True),
        ("go version go1.26.1 linux/amd64", True),
        ("go version go1.26.6 linux/amd64", False),  # cuts queries after 30 s
        ("go version go1.26 linux/amd64", False),
        ("go version go1.24.3 linux/amd64", False),
        ("go version devel", False),
    ],
)
def test_only_a_go_that_builds_dagger_well_is_used(said: str, good: bool) -> None:
    assert is_good(parse_version(said)) is good


def test_only_debians_own_archive_goes_into_an_image(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(
        "# a comment\nTypes: deb\nURIs: http://archive.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main\n\nTypes: deb\nURIs: http://vendor.example\nSuites: nodistro\nComponents: main\n"
    )
    text = apt_sources(tmp_path)
    assert text.startswith("Types: deb")
    assert "archive.example" in text
    assert "vendor.example" not in text
    (parts / "debian.sources").unlink()
    (tmp_path / "sources.list").write_text(
        "deb [arch=amd64] http://archive.example/debian bookworm main\n"
        "deb http://vendor.example bookworm stable\n# deb http://old.example bookworm main\n"
    )
    assert apt_sources(tmp_path) == "deb [arch=amd64] http://archive.example/debian bookworm main\n"
    (tmp_path / "sources.list").unlink()
    with pytest.raises(TestbedError, match="no entry for Debian bookworm"):
        apt_sources(tmp_path)


# ---- how tests find the engines


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (None, "call testbed/up docker"),
        ({"missing": {}}, "call testbed/up docker"),
        ({"missing": {"docker": "No root. Next: sudo."}}, "No root. Next: sudo."),
    ],
)
def test_a_missing_engine_skips_a_test_and_fails_it_in_ci(
    written: settings.Settings | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "read", lambda: written)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        require("docker")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=reason):
        require("docker")


def test_an_engine_that_is_up_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    up: settings.Settings = {"docker": {"host": "unix:///x", "version": "1"}, "missing": {}}
    monkeypatch.setattr(settings, "read", lambda: up)
    assert require("docker")["host"] == "unix:///x"

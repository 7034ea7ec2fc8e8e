"""`dagger/`, the module: what its document says, and that a run there is held as any other run is."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import docker
import pytest

import holdfast
from holdfast.guest.binary import guest_path
from tests.conformance import host
from tests.testbed import require

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/dagger-module.md"
BLOCKS = re.findall(r"```shell-session\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
NOT_IN_A_COPY = (".git", ".venv", "bin", "dist", ".testbed.json", "__pycache__", ".*_cache", ".hypothesis")

# The first call on an engine builds the guest there; it takes minutes on a busy machine, and later ones find it.
pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The testbed's engine and its CLI."""
    settings = require("dagger")
    require("images")
    return {
        **{name: value for name, value in os.environ.items() if name != "DAGGER_HOST"},
        "PATH": f"{Path(settings['cli']).parent}:{os.environ['PATH']}",
        "_EXPERIMENTAL_DAGGER_RUNNER_HOST": settings["hosts"]["unix"],
        "DAGGER_SILENT": "1",
        "DO_NOT_TRACK": "1",
        "DAGGER_NO_NAG": "1",
    }


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a clone has it: nothing that was made from it."""
    folder = tmp_path_factory.mktemp("clone") / "holdfast"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_IN_A_COPY))
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


class Module:
    """The function `run`, with a guest that is there already."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self.folder = environment, folder

    def call(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        argv = ["dagger", "-m", str(ROOT / "dagger"), "call", "run", "--guest-file", str(guest_path("amd64")), *words]
        return subprocess.run(
            argv, env=self.environment, cwd=self.folder, capture_output=True, timeout=300, check=False
        )

    def run(self, code: str, *words: str) -> dict[str, Any]:
        done = self.call("--code", code, *words, "json")
        assert done.returncode == 0, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def module(environment: dict[str, str], tmp_path: Path) -> Module:
    return Module(environment, tmp_path)


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_the_document_says_what_happens(text: str, environment: dict[str, str], clone: Path) -> None:
    for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = example.partition("\n")
        done = subprocess.run(
            command, shell=True, env=environment, cwd=clone, capture_output=True, text=True, timeout=800, check=False
        )
        refused = expected.startswith("Error: ")
        assert (done.returncode != 0) == refused, f"{command}: {done.stderr}"
        pattern = ".*".join(map(re.escape, expected.strip().split("…")))
        said = (done.stderr if refused else done.stdout).strip()
        assert re.fullmatch(pattern, said, re.DOTALL), f"{command}\n{said}"


def test_checks_of_the_project_can_be_called(environment: dict[str, str], clone: Path) -> None:
    argv = ["dagger", "-m", "dagger", "call", "check"]
    done = subprocess.run(argv, env=environment, cwd=clone, capture_output=True, text=True, timeout=800, check=False)
    assert done.stdout.strip() == "all checks passed", done.stderr


SAME = """
import os, subprocess, sys
os.makedirs("out/d")
open("out/d/a.bin", "wb").write(bytes(range(256)))
open("out/big", "wb").truncate(20_000_000)
os.write(1, b"\\xff\\xe2\\x82 \\xf0\\x9f\\x92 <&> " + f"{os.environ['WHO']} {sys.argv[1]}".encode())
os.write(2, b"x" * 300_000)
subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
sys.exit(150)
"""


def test_a_result_is_the_one_of_the_package(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program through the package's engine `dagger`: the same names, and all values but the clock's."""
    settings = require("dagger")
    monkeypatch.setenv("DAGGER_HOST", settings["hosts"]["unix"])
    monkeypatch.setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", settings["cli"])
    wanted = holdfast.run(
        SAME, engine="dagger", args=["a,b"], env={"WHO": "ä=b"}, artifacts=["out"], timeout=60
    ).as_tool()
    found = module.run(SAME, "--args-json", '["a,b"]', "--env", "WHO=ä=b", "--artifacts", "out", "--timeout", "60")
    assert wanted["exit_code"] == 150
    assert wanted["left_processes"] == ["sleep"]
    assert [skipped["path"] for skipped in wanted["artifacts_skipped"]] == ["out/big"]
    assert list(found) == list(wanted)
    for measured in ("duration_ms", "cpu_ms", "peak_memory_bytes"):
        assert found.pop(measured) > 0
        wanted.pop(measured)
    assert found == wanted


LOOK = """
import json, os, resource, socket
def refused(act):
    try:
        act()
    except OSError as error:
        return error.strerror
    return "allowed"
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "uid": os.getuid(),
    "capabilities": status["CapEff"].strip(),
    "no_new_privs": status["NoNewPrivs"].strip(),
    "environment": sorted(os.environ),
    "guest": refused(lambda: open("/proc/1/environ").read()),
    "results": refused(lambda: os.listdir("/.holdfast/job")),
    "network": refused(lambda: socket.socket(socket.AF_INET)),
    "unix": refused(lambda: socket.socket(socket.AF_UNIX)),
    "root": refused(lambda: open("/usr/mine", "w")),
    "work": refused(lambda: open("/work/mine", "w")),
    "limits": [resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("DATA", "FSIZE", "NOFILE")],
    "space": os.statvfs("/work").f_blocks * os.statvfs("/work").f_frsize,
    "stamp": os.urandom(8).hex(),
}))
"""


def test_a_program_is_held_and_never_answered_from_the_cache(module: Module) -> None:
    first = json.loads(module.run(LOOK, "--memory-mb", "300", "--workspace-mb", "20")["stdout"])
    again = json.loads(module.run(LOOK, "--memory-mb", "300", "--workspace-mb", "20")["stdout"])
    assert first["uid"] >= 1_000_000
    assert again["uid"] != first["uid"]
    assert again["stamp"] != first["stamp"]
    assert int(first["capabilities"], 16) == 0
    assert first["no_new_privs"] == "1"
    assert first["environment"] == ["HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"]
    for what in ("guest", "results", "root"):
        assert first[what] == "Permission denied", what
    assert first["network"] == "Operation not permitted"
    assert (first["unix"], first["work"]) == ("allowed", "allowed")
    assert first["limits"] == [300 << 20, 256 << 20, 4096]
    assert first["space"] == 20 << 20


def test_network_is_there_when_it_is_asked_for(module: Module) -> None:
    found = json.loads(module.run(LOOK, "--network")["stdout"])
    assert found["network"] == "allowed"
    assert found["uid"] >= 1_000_000


def test_nothing_survives_a_run(module: Module) -> None:
    mark = f"hfmark{secrets.token_hex(8)}"
    daemons = "for n in 1 2 3; do (setsid sh -c 'sleep 600' >/dev/null 2>&1 &) ; done; sleep 600"
    found = module.run(daemons, "--runtime", "bash", "--timeout", "1.5", "--env", f"MARK={mark}")
    assert found["end_cause"] == "timeout"
    assert found["exit_code"] is None
    assert host.programs(mark) == []


def test_output_is_exact_in_a_file_and_a_death_is_told(module: Module) -> None:
    code = "import os; os.write(1, bytes(range(256))); os.kill(os.getpid(), 9)"
    done = module.call("--code", code, "stdout-file", "export", "--path", "out.bin")
    assert done.returncode == 0, done.stderr.decode()
    assert (module.folder / "out.bin").read_bytes() == bytes(range(256))
    found = module.run(code)
    assert (found["exit_code"], found["signal"], found["end_cause"]) == (None, 9, "completed")


def test_a_file_of_code_is_in_no_log_of_the_engine(module: Module) -> None:
    word = secrets.token_hex(8)
    (module.folder / "main.py").write_text(f"print('{word}'[::-1])")
    done = module.call("--code-file", "main.py", "stdout")
    assert done.stdout.decode().strip() == word[::-1], done.stderr.decode()
    client = docker.DockerClient(require("docker")["host"])
    log = client.containers.get(require("dagger")["hosts"]["container"].partition("://")[2]).logs(tail=4000)
    client.close()
    assert b"/.holdfast/job" in log  # it is the right log, and has what was run
    assert word.encode() not in log


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to run: code or code-file"),
        (["--code", " "], "there is no code to run"),
        (["--code", "1", "--timeout", "0"], "a timeout of 0 s is none"),
        (["--code", "1", "--env", "NAME"], "say NAME=VALUE"),
        (["--code", "1", "--args-json", "a"], "the arguments are no JSON list"),
        (["--code", "1", "--packages", "../x"], '"../x" is not a package'),
        (["--code", "1", "--packages", "x", "--runtime", "bash"], "there are no packages for bash"),
        (["--code", "1", "--image", "no-such-image:1"], "no-such-image:1: not found"),
        (["--code", "1", "--files", "taken"], "the code itself is written to main.py"),
        (["--code", "1", "--packages", "holdfast-no-such-package"], "No matching distribution found"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str, module: Module) -> None:
    (module.folder / "taken").mkdir()
    (module.folder / "taken/main.py").touch()
    done = module.call(*words, "stdout")
    assert done.returncode != 0
    assert said in done.stderr.decode()


def test_an_image_may_be_a_file(module: Module) -> None:
    """An image with nothing but bash: what runs in it is not from an image of the registry."""
    image = module.folder / "image.tar"
    image.write_bytes(_image_with("/bin/bash"))
    found = module.run(
        "echo $BASH_VERSION; [ -e /usr/bin/env ] || echo bare", "--runtime", "bash", "--image-file", str(image)
    )
    assert found["stdout"].endswith("bare\n"), found
    refused = module.call("--code", "1", "--image-file", str(image), "stdout")
    assert "python3 is not in this sandbox's PATH" in refused.stderr.decode()


def _image_with(program: str) -> bytes:
    """An image as `docker save` writes it, of one program and the libraries that it needs."""
    needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    layer = _tar({path: Path(path).read_bytes() for path in (program, *re.findall(r"(/\S+) \(0x", needs))}, mode=0o755)
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    manifest = [{"Config": "config.json", "RepoTags": ["holdfast-test:1"], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    return _tar({"layer.tar": layer, **{name: json.dumps(text).encode() for name, text in files.items()}})


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()

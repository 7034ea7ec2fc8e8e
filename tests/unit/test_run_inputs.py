"""What goes into a run, checked before anything is made: code, files and packages."""

from __future__ import annotations

import pytest

from holdfast import Limits, errors
from holdfast.compute.inputs import checked_files
from holdfast.compute.packages import checked_packages

LIMITS = Limits(max_files=4, max_file_size_bytes=100)


def test_code_and_files_become_bytes_under_one_spelling() -> None:
    files = checked_files("main.py", "ü", {"a": "text", "./b//c": b"\xff", "/work/d": ""}, Limits(), "/work")
    assert files == {"main.py": "ü".encode(), "a": b"text", "b/c": b"\xff", "d": b""}


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"../x": ""}, errors.PathNotAllowed),
        ({"a/../../x": ""}, errors.PathNotAllowed),
        ({"/etc/x": ""}, errors.PathNotAllowed),
        ({"//etc/x": ""}, errors.PathNotAllowed),
        ({"/workx": ""}, errors.PathNotAllowed),
        ({"": ""}, errors.SandboxIsADirectory),
        ({".": ""}, errors.SandboxIsADirectory),
        ({"a/": ""}, errors.SandboxIsADirectory),
        ({"main.py": ""}, errors.InvalidRequest),
        ({"x/../main.py": ""}, errors.InvalidRequest),
        ({"/work/main.py": ""}, errors.InvalidRequest),
        ({"a": "", "./a": ""}, errors.InvalidRequest),
        ({"a": "x" * 101}, errors.FileTooLarge),
        ({"a": "", "b": "", "c": "", "d": ""}, errors.TooManyFiles),
    ],
)
def test_files_that_cannot_be(files: dict[str, str | bytes], error: type[errors.SandboxError]) -> None:
    with pytest.raises(error):
        checked_files("main.py", "1", files, LIMITS, "/work")


def test_code_that_cannot_be() -> None:
    with pytest.raises(errors.InvalidRequest, match="no code"):
        checked_files("main.py", " \n", {}, LIMITS, "/work")
    with pytest.raises(errors.FileTooLarge, match="the code has 101 bytes"):
        checked_files("main.py", "x" * 101, {}, LIMITS, "/work")
    assert checked_files("main.py", "x" * 100, {}, LIMITS, "/work")


def test_packages_are_one_set_in_one_order() -> None:
    assert checked_packages("python", ["six", "pandas==2.2", "six"]) == ("pandas==2.2", "six")
    assert checked_packages("python", []) == ()
    assert checked_packages("bash", []) == ()


@pytest.mark.parametrize(
    "name",
    ["a", "A.b-c_d", "requests[socks,use_chardet]", "x==1.0", "x>=1,<2", "x~=1.4.2", "x===1.0+local", "x!=1.*"],
)
def test_packages_of_pip(name: str) -> None:
    assert checked_packages("python", [name]) == (name,)


@pytest.mark.parametrize("name", ["a", "@scope/name", "a@1.2.3", "a@^1.0.0", "@s/a@latest", "is-number@7.0.0"])
def test_packages_of_npm(name: str) -> None:
    assert checked_packages("node", [name]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "-r x", "--index-url=x", "-e .", "./x", "/x", "x y", "x;y", "git+https://x", "https://x/y.whl"),
        *("x @ https://y", "x==", "x==1 --hash=y", "$(x)", "x\n", "file:x", "@scope", "../x"),
    ],
)
@pytest.mark.parametrize("runtime", ["python", "node"])
def test_what_is_no_package(runtime: str, name: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="is not a package"):
        checked_packages(runtime, [name])


def test_a_runtime_without_packages() -> None:
    with pytest.raises(errors.InvalidRequest, match="no packages for bash"):
        checked_packages("bash", ["x"])
    with pytest.raises(errors.InvalidRequest, match="too many"):
        checked_packages("python", [f"p{n}" for n in range(101)])

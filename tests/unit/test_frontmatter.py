"""Prompt files: every form that the seeds name, and every mistake with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast import aio, frontmatter, safeyaml
from holdfast.config import SandboxConfig
from holdfast.errors import ConfigError, Mistake

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/holdfast/schema/frontmatter.json").read_text())


def read(sandbox: str, name: str = "agent.prompt") -> SandboxConfig:
    found = frontmatter.parse(f"---\nmodel: openai/gpt-4o\n{sandbox}\n---\nbody\n", name).sandbox
    assert found is not None
    return found


def wrong(content: str | bytes, name: str = "agent.prompt") -> list[Mistake]:
    with pytest.raises(ConfigError) as caught:
        frontmatter.parse(content, name)
    return list(caught.value.mistakes)


def wrong_sandbox(sandbox: str) -> list[Mistake]:
    """The mistakes of a `sandbox` that stands in line 3."""
    return wrong(f"---\nmodel: openai/gpt-4o\n{sandbox}\n---\nbody\n")


# --- the forms of the seeds

DEVELOPER = """
sandbox:
  mode: code
  runtime: python
  image: "python:3.11-slim"
  session: default
  limits:
    cpu_millicores: 1000        # 1 CPU
    memory_mb: 2048
    timeout_seconds: 900
    workspace_mb: 500
  network:
    enabled: false
"""
CORRELATOR = """
sandbox:
  runtime: python
  image: "python:3.11-slim"
  timeout_seconds: 300
  max_stdout_bytes: 200000
  allow_network: false
  pip_packages:
    - pandas
    - pyyaml
"""
LINUX = """
sandbox:
  mode: code
  runtime: linux    # default, or "python", "node", or any Docker image
  session: workflow  # or "agent" for per-agent-run isolation
  limits:
    timeout_seconds: 300
    max_file_size_bytes: 10485760  # 10MB
    max_files: 100
"""
FORMS = [DEVELOPER, CORRELATOR, LINUX, "sandbox: python", "sandbox: node", "sandbox: bash", "sandbox: {mode: code}"]


def test_one_line_is_a_runtime_in_compute_mode() -> None:
    found = read("sandbox: python")
    assert (found.mode, found.runtime_name, found.image_name, found.wants_network) == ("compute", "python", None, False)
    assert read("sandbox: node").runtime_name == "node"
    assert read("sandbox: bash").runtime_name == "bash"


def test_compute_mode_with_keys() -> None:
    found = read(CORRELATOR)
    assert (found.mode, found.runtime_name, found.image_name) == ("compute", "python", "python:3.11-slim")
    assert (found.timeout, found.max_stdout_bytes, found.wants_network) == (300, 200000, False)
    assert found.packages == ("pandas", "pyyaml")
    assert read("sandbox: {runtime: node, npm_packages: [lodash]}").npm_packages == ("lodash",)
    assert read("sandbox: {runtime: python, mode: compute}") == read("sandbox: {runtime: python}")


def test_code_mode_with_keys() -> None:
    found = read(DEVELOPER)
    assert (found.mode, found.runtime_name, found.image_name) == ("code", "python", "python:3.11-slim")
    assert (found.session, found.timeout, found.wants_network) == ("default", 900, False)
    asked = found.limits.model_dump(exclude_none=True)
    assert asked == {"cpu_millicores": 1000, "memory_mb": 2048, "timeout_seconds": 900, "workspace_mb": 500}


def test_code_mode_of_the_overview() -> None:
    found = read(LINUX)
    assert (found.runtime_name, found.image_name, found.session, found.timeout) == ("bash", None, "workflow", 300)
    assert (found.limits.max_file_size_bytes, found.limits.max_files) == (10485760, 100)
    assert read("sandbox: {mode: code}").runtime_name == "bash", "linux is the default of code mode"
    taken = read("sandbox: {mode: code, runtime: 'golang:1.22'}")
    assert (taken.runtime_name, taken.image_name) == ("bash", "golang:1.22")


@pytest.mark.parametrize("session", ["workflow", "default", "agent", "isolated", "build box"])
def test_sessions(session: str) -> None:
    assert read(f"sandbox: {{mode: code, session: {session}}}").session == session


@pytest.mark.parametrize(
    ("short", "image"),
    [("linux", "ubuntu:22.04"), ("python", "python:3.11-slim"), ("node", "node:20-slim"), ("rust:1.75", "rust:1.75")],
)
def test_images_have_short_names(short: str, image: str) -> None:
    assert read(f"sandbox: {{mode: code, image: '{short}'}}").image_name == image


@pytest.mark.parametrize("asking", ["allow_network: true", "network: {enabled: true}"])
def test_either_spelling_asks_for_network(asking: str) -> None:
    assert read(f"sandbox: {{{asking}}}").wants_network is True


def test_no_sandbox_means_no_tools() -> None:
    assert frontmatter.parse("---\nmodel: x\n---\nbody\n").sandbox is None
    assert frontmatter.parse("---\n---\nbody\n").sandbox is None
    assert frontmatter.parse("---\n# only a comment\n---\nbody\n").sandbox is None
    assert frontmatter.parse("just a body\n").sandbox is None
    assert frontmatter.parse("").sandbox is None


def test_the_example_of_the_tree() -> None:
    found = frontmatter.load(ROOT / "examples/log_analyzer.prompt")
    assert found.sandbox == SandboxConfig(runtime="python")
    assert found.body.startswith("\nYou are a log analysis agent.")


@pytest.mark.parametrize("form", FORMS)
def test_forms_fit_the_schema(form: str) -> None:
    jsonschema.validate(yaml.safe_load(form), SCHEMA)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("---\nsanbox: python\n---\n", "there is a key sanbox, and none named sandbox"),
        ("---\nSandbox: python\n---\n", "there is a key Sandbox, and none named sandbox"),
        ("---\nmetadata:\n  sandbox: python\n---\n", "there is a key sandbox beneath metadata"),
        ("sandbox: python\n\nYou are …\n", "and no frontmatter"),
        ("```yaml\nsandbox: python\n```\n", "and no frontmatter"),
    ],
)
async def test_an_author_who_seems_to_have_meant_a_sandbox_is_told(
    content: str, note: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = frontmatter.parse(content)
    assert found.sandbox is None
    assert note in found.notes[0]
    file = tmp_path / "agent.prompt"
    file.write_text(content)
    assert len(await aio.toolset(file)) == 0
    assert note in caplog.text, "and a program that only sees that there are no tools"
    caplog.clear()
    for silent in ("---\nmodel: x\n---\nsandbox: in the body\n", "no word of it\n"):
        assert frontmatter.parse(silent).notes == ()


# --- the file around it


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_body_is_left_alone(body: str) -> None:
    head = "---\nsandbox: python\n---\n"
    found = frontmatter.parse(head.encode() + body.encode("utf-8"), "agent.prompt")
    assert (found.body, found.sandbox) == (body, SandboxConfig(runtime="python"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    text = end.join(["---", "model: x", "sandbox:", "  runtime: node", "---", "one", "two", ""])
    found = frontmatter.parse(text.encode(), "agent.prompt")
    assert found.sandbox is not None and found.sandbox.runtime_name == "node"
    assert found.body == end.join(["one", "two", ""])
    assert found.places["sandbox.runtime"] == safeyaml.Place(4, 12)
    (mistake,) = wrong(text.replace("runtime", "runtim").encode())
    assert (mistake.line, mistake.column) == (4, 3)


def test_a_byte_order_mark_is_no_part_of_it() -> None:
    for content in (b"\xef\xbb\xbf---\nsandbox: python\n---\nx", "\ufeff---\nsandbox: python\n---\nx"):
        found = frontmatter.parse(content)
        assert (found.sandbox, found.body) == (SandboxConfig(runtime="python"), "x")
    assert "UTF-16" in wrong("---\nsandbox: python\n---\nx".encode("utf-16"))[0].text


def test_what_may_stand_before_it() -> None:
    """A .prompt file may begin with comments, as dotprompt has it; in Markdown that is a heading."""
    text = "# Copyright\n\n---\nsandbox:\n  runtim: python\n---\nx"
    assert [(one.line, one.column) for one in wrong(text, "agent.prompt")] == [(5, 3)]
    assert frontmatter.parse(text, "agent.md").body == text
    assert frontmatter.parse("---\nsandbox: python\n---\nx", "agent.md").sandbox is not None


def test_the_end_is_missing() -> None:
    (mistake,) = wrong("---\nsandbox: python\nbody\n")
    assert str(mistake).startswith("agent.prompt:1:1: the frontmatter that begins here has no end")
    assert frontmatter.parse("---\nsandbox: python\n---").body == ""


def test_bytes_that_are_no_text() -> None:
    (mistake,) = wrong(b"---\nmodel: \xc3\xa9\nname: a\xff\n---\n")
    assert (mistake.line, mistake.column) == (3, 8)
    assert "0xff" in mistake.text
    (mistake,) = wrong(b"---\nmodel: a\x00b\n---\n")
    assert (mistake.line, mistake.column) == (2, 9)
    assert frontmatter.parse(b"---\nmodel: \xc3\xa9\n---\n\x00 is the body's own business").sandbox is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.prompt: cannot be read: No such file") as caught:
        frontmatter.load(tmp_path / "agent.prompt")
    assert caught.value.file == str(tmp_path / "agent.prompt")
    with pytest.raises(ConfigError, match="Is a directory"):
        frontmatter.load(tmp_path)
    (tmp_path / "agent.prompt").write_text("---\nsandbox: node\n---\n")
    assert frontmatter.load(tmp_path / "agent.prompt").sandbox == SandboxConfig(runtime="node")


# --- bounds: T61


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (bomb(9, 9), "grows to more than"),
        (bomb(30, 2), "grows to more than"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested more than"),
        ("\n".join(f"{' ' * n}a:" for n in range(300)), "nested more than"),
        ("a: " + "x" * (10 << 20), "larger than"),
        ("a: " + "x" * (80 << 10), "longer than"),
        ("\n".join(f"k{n}: 1" for n in range(6000)), "more than 4000 values"),
        ("sandbox: !!python/object/apply:os.system ['touch /tmp/pwned']", "python/object/apply:os.system"),
        ("a: !!python/name:os.system", "python/name:os.system"),
        ("a: !custom x", "!custom"),
        ("a: *nothing", "not there"),
        ("a: &a [*a]", "not there"),
    ],
    ids=lambda value: value[:30],
)
def test_too_much(head: str, text: str) -> None:
    (mistake,) = wrong(f"---\n{head}\n---\n")
    assert text in mistake.text
    assert mistake.file == "agent.prompt"


def test_not_too_much() -> None:
    """The twins: what is within the bounds is read, also an alias in what is not ours."""
    heads = [
        bomb(4, 9),
        "a: " + "[" * 20 + "]" * 20,
        "a: " + "x" * (60 << 10),
        "\n".join(f"k{n}: 1" for n in range(1900)),
        "a: !!str x",
        "base: &base {a: 1}\nother:\n  <<: *base",
    ]
    for head in heads:
        found = frontmatter.parse(f"---\n{head}\nsandbox: python\n---\nx")
        assert found.sandbox == SandboxConfig(runtime="python")


@given(st.binary(max_size=300))
def test_no_content_is_more_than_a_mistake(content: bytes) -> None:
    for wrapped in (content, b"---\n" + content + b"\n---\n", b"---\nsandbox:\n  " + content + b"\n---\n"):
        try:
            frontmatter.parse(wrapped, "agent.prompt")
        except ConfigError as error:
            assert error.mistakes


# --- mistakes: T62, T63


@pytest.mark.parametrize(
    ("sandbox", "key", "text"),
    [
        ("sandbox: {runtime: python, runtime: node}", "sandbox.runtime", "is there twice"),
        ("sandbox: python\nsandbox: node", "sandbox", "is there twice"),
        ("sandbox: {timeout_second: 1}", "sandbox.timeout_second", "did you mean timeout_seconds?"),
        ("sandbox: {limits: {memory: 1}}", "sandbox.limits.memory", "did you mean memory_mb?"),
        ("sandbox: {memory_mb: 1}", "sandbox.memory_mb", "it belongs under limits"),
        ("sandbox: {limits: {runtime: python}}", "sandbox.limits.runtime", "directly under sandbox"),
        ("sandbox: {engine: docker}", "sandbox.engine", "HOLDFAST_ENGINE"),
        ("sandbox: {zzz: 1}", "sandbox.zzz", "there are mode, runtime"),
        ("sandbox: {limits: {cpu: 2}}", "sandbox.limits.cpu", "did you mean cpu_millicores?"),
        ("sandbox: {timeout_seconds: 30s}", "sandbox.timeout_seconds", "write 30"),
        ("sandbox: {timeout_seconds: 5 min}", "sandbox.timeout_seconds", "write 300"),
        ("sandbox: {limits: {memory_mb: 2GB}}", "sandbox.limits.memory_mb", "write 2048"),
        ("sandbox:\nruntime: python", "sandbox", "put spaces before runtime"),
        ("sandbox:", "sandbox", "is nothing; write a runtime"),
        ("sandbox: [python]", "sandbox", "is a list; write a runtime"),
        ("sandbox: true", "sandbox", "is true; write a runtime"),
        ("sandbox: pyhton", "sandbox.runtime", "did you mean python?"),
        ("sandbox: {mode: cod}", "sandbox.mode", "did you mean code?"),
        ("sandbox: {limits: 5}", "sandbox.limits", "must have keys of its own beneath it, not 5"),
        ("sandbox: {network: true}", "sandbox.network", "must have keys of its own beneath it, not true; write allow_"),
        ("sandbox: {pip_packages: pandas}", "sandbox.pip_packages", "must be a list, not the text"),
        ("sandbox: {pip_packages: pandas}", "sandbox.pip_packages", "write [pandas]"),
        ("sandbox: {pip_packages: [pandas, 1.5]}", "sandbox.pip_packages[1]", "put it in quotes"),
        ("sandbox: {pip_packages: ['--index-url=http://x']}", "sandbox.pip_packages[0]", "is not a package"),
        ("sandbox: {runtime: node, npm_packages: ['git+ssh://x']}", "sandbox.npm_packages[0]", "is not a package"),
        ("sandbox: {runtime: node, pip_packages: [six]}", "sandbox.pip_packages", "for the runtime python"),
        ("sandbox: {image: 'Not An Image'}", "sandbox.image", "is not the name of an image"),
        ("sandbox: {runtime: 'golang:1.22'}", "sandbox.runtime", "for an image write image"),
        ("sandbox: {mode: code, session: ''}", "sandbox.session", "1 to 256 printable"),
        ("sandbox: {secrets: ['A B']}", "sandbox.secrets[0]", "not the name of an environment variable"),
        ("sandbox: {timeout_seconds: 5, limits: {timeout_seconds: 6}}", "sandbox.limits.timeout_seconds", "keep one"),
        ("sandbox: {allow_network: false, network: {enabled: true}}", "sandbox.network.enabled", "keep one"),
        ("sandbox: {runtime: *x}", None, "not there"),
        ("x: &x python\nsandbox: {runtime: *x}", "sandbox.runtime", "is an alias; write the value out"),
        ("sandbox: {runtime: !!str python}", "sandbox.runtime", "has a tag; leave it out"),
        ("sandbox: {1: x}", "sandbox", "has a key that is not a word"),
    ],
)
def test_a_mistake_names_its_key_and_what_to_write(sandbox: str, key: str | None, text: str) -> None:
    (mistake,) = wrong_sandbox(sandbox)
    assert mistake.key == key
    assert text in mistake.text
    assert mistake.line in (3, 4)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1:30", "write 90"),
        (".inf", "not a number that one can count to"),
        (".nan", "not a number that one can count to"),
        ("-1", "more than 0"),
        ("0", "more than 0"),
        ("1" + "0" * 40, "too large"),
        ("1" + "0" * 30, "must be at most"),
        ("0x7f", "write a decimal number"),
        ("0o17", "write a decimal number"),
        ("0644", "write a decimal number"),
        ("1_000", "write 1000"),
        ('"300"', "write it without quotes: 300"),
        ("true", "must be a whole number, not true"),
        ("yes", "true or false"),
        ("2025-01-01", "as a date"),
        ("1.5", "must be a whole number, not 1.5"),
        ("[1]", "must be a whole number, not a list"),
        ("ten", 'must be a whole number, not the text "ten"'),
    ],
)
def test_numbers_that_are_none(value: str, text: str) -> None:
    (mistake,) = wrong_sandbox(f"sandbox:\n  limits:\n    memory_mb: {value}")
    assert (mistake.key, mistake.line, mistake.column) == ("sandbox.limits.memory_mb", 5, 16)
    assert text in mistake.text


@pytest.mark.parametrize("value", ["1", "300", "+7", "8192"])
def test_numbers_that_are(value: str) -> None:
    assert read(f"sandbox: {{limits: {{memory_mb: {value}}}}}").limits.memory_mb == int(value)


@pytest.mark.parametrize("value", ["yes", "no", "on", "off", "y", "N", "Yes"])
def test_words_that_are_true_in_some_versions(value: str) -> None:
    (mistake,) = wrong_sandbox(f"sandbox: {{allow_network: {value}}}")
    assert "write true or false" in mistake.text
    (mistake,) = wrong_sandbox(f"sandbox: {{mode: code, session: {value}}}")
    assert "put it in quotes" in mistake.text
    assert read(f"sandbox: {{mode: code, session: '{value}'}}").session == value


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_words_that_are_true_in_all(value: str) -> None:
    assert read(f"sandbox: {{allow_network: {value}}}").wants_network is True


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    told = wrong_sandbox("sandbox:\n  mode: cod\n  timeout_second: 5\n  allow_network: yes\n  mode: code")
    assert list(map(str, told)) == [
        'agent.prompt:4:9: sandbox.mode: must be compute or code, not the text "cod"; did you mean code?',
        "agent.prompt:5:3: sandbox.timeout_second: there is no such key; did you mean timeout_seconds?",
        "agent.prompt:6:18: sandbox.allow_network: yes is true or false in some versions of YAML and text in others; "
        "write true or false",
        "agent.prompt:7:3: sandbox.mode: is there twice, first in line 4; keep one of them",
    ]


def test_the_error_itself_knows_the_first_place() -> None:
    with pytest.raises(ConfigError) as caught:
        frontmatter.parse("---\nsandbox: {zzz: 1, mode: x}\n---\n", "agent.prompt")
    error = caught.value
    assert (error.file, error.line, error.column, error.key) == ("agent.prompt", 2, 11, "sandbox.zzz")
    assert str(error).count("\n") == 1


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("sandbox: python: 3", "second colon"),
        ("sandbox:\n\truntime: python", "tab"),
        ("- a\n- b", "must be keys with values"),
        ("just text", "must be keys with values"),
        ("sandbox: [python", "is not YAML"),
        ("a: 1\n...\nb: 2", "is not YAML"),
    ],
)
def test_what_is_no_yaml(head: str, text: str) -> None:
    (mistake,) = wrong(f"---\n{head}\n---\nbody\n")
    assert text in mistake.text
    assert mistake.line is not None and mistake.line >= 2


def test_what_has_no_effect_is_noted() -> None:
    def notes(head: str) -> tuple[str, ...]:
        return frontmatter.parse(f"---\n{head}\n---\n").notes

    assert "no effect in compute mode" in notes("sandbox: {session: workflow}")[0]
    assert "no effect in code mode" in notes("sandbox: {mode: code, pip_packages: [six]}")[0]
    assert "no effect in code mode" in notes("sandbox: {mode: code, cache: true}")[0]
    assert "did you mean that" in notes("sanbox: python")[0]
    assert notes("sandbox: {mode: code, session: workflow}") == notes("model: x") == ()


def test_hostile_text_cannot_drive_a_terminal() -> None:
    (mistake,) = wrong('---\nsandbox: {"\\e[2J": 1}\n---\n', "a\x1b[2J.prompt")
    assert "\x1b" not in str(mistake)


# --- the schema says the same


@pytest.mark.parametrize(
    "sandbox",
    [
        {"timeout_second": 1},
        {"limits": {"memory": 1}},
        {"limits": {"memory_mb": 0}},
        {"limits": {"memory_mb": "300"}},
        {"mode": "cod"},
        {"allow_network": "yes"},
        {"pip_packages": "pandas"},
        "pyhton",
        None,
        ["python"],
    ],
    ids=str,
)
def test_the_schema_refuses_what_we_refuse(sandbox: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"sandbox": sandbox}, SCHEMA)
    assert wrong(f"---\n{json.dumps({'sandbox': sandbox})}\n---\n")


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate({"model": "x", "input": {"schema": {}}}, SCHEMA)

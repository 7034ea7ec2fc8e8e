"""Spans, metrics and log events, by the names of the design; and nothing of what is run in them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import aio, errors, telemetry
from holdfast.config import SandboxConfig, SandboxLimits
from holdfast.engines.fake import FakeCall, FakeEngine

_EXPORTER = InMemorySpanExporter()
_READER = InMemoryMetricReader()


@pytest.fixture
def recorded() -> Iterator[InMemorySpanExporter]:
    """OpenTelemetry has one provider for a process, and it cannot be taken back."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([_READER]))
    _EXPORTER.clear()
    yield _EXPORTER


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with FakeEngine() as engine:

        @engine.program("python3")
        def python(call: FakeCall) -> int:
            call.stdout.write("output-secret")
            call.stderr.write("error-secret")
            call.files.write("artifact-secret.txt", b"x")
            return 3 if "fail" in call.argv else 0

        @engine.program("waiter")
        async def waiter(call: FakeCall) -> None:
            await call.sleep(3600)

        yield engine


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def _id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def run(*args: str) -> holdfast.RunResult:
    return holdfast.run(
        "code-secret",
        engine="fake",
        args=[*args, "argument-secret"],
        env={"NAME": "environment-secret"},
        files={"file-secret": "content-secret"},
        stdin="stdin-secret",
        artifacts=["*"],
        timeout=7,
    )


CHILDREN = ["connect", "prepare_files", "exec", "collect_outputs", "collect_artifacts"]


def test_a_run_is_a_span_with_its_parts_under_the_callers(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    with trace.get_tracer("test").start_as_current_span("AgentExecute") as outer:
        run()
    found = spans(recorded)
    assert [span.name for span in recorded.get_finished_spans()] == [
        *(f"sandbox.{child}" for child in CHILDREN),
        "sandbox_run",
        "AgentExecute",
    ]
    whole = found["sandbox_run"]
    assert whole.parent is not None and whole.parent.span_id == outer.get_span_context().span_id
    for child in CHILDREN:
        parent = found[f"sandbox.{child}"].parent
        assert parent is not None and parent.span_id == _id(whole)


def attributes(exporter: InMemorySpanExporter, name: str) -> dict[str, Any]:
    """Of the one span of this name, without the operator's decision."""
    (found,) = [span for span in exporter.get_finished_spans() if span.name == name]
    decision = ("sandbox.asked.", "sandbox.allowed.", "sandbox.effective.")
    return {key: value for key, value in (found.attributes or {}).items() if not key.startswith(decision)}


def decision(exporter: InMemorySpanExporter, name: str, about: str) -> dict[str, Any]:
    """asked, allowed and effective of one thing, as a span tells them."""
    (found,) = [span for span in exporter.get_finished_spans() if span.name == name]
    columns = {column: (found.attributes or {}).get(f"sandbox.{column}.{about}") for column in COLUMNS}
    return {column: value for column, value in columns.items() if value is not None}


COLUMNS = ("asked", "allowed", "effective")


def test_the_attributes_of_a_run(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    run()
    told = attributes(recorded, "sandbox_run")
    assert told.pop("sandbox.sandbox_id").startswith("run-")
    assert told == {
        "sandbox.runtime": "python",
        "sandbox.engine": "fake",
        "sandbox.timeout_seconds": 7,
        "sandbox.exit_code": 0,
        "sandbox.end_cause": "completed",
        "sandbox.stdout_bytes": 13,
        "sandbox.stderr_bytes": 12,
        "sandbox.artifacts_count": 3,
    }


def test_a_span_shows_asked_allowed_and_effective(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    holdfast.run("1", engine="fake", timeout=9999)
    assert decision(recorded, "sandbox_run", "timeout_seconds") == {"asked": 9999, "allowed": 3600, "effective": 3600}
    assert decision(recorded, "sandbox_run", "memory_mb") == {"effective": 512}
    recorded.clear()
    with pytest.raises(errors.PolicyError):
        holdfast.run("1", engine="fake", network=True)
    assert decision(recorded, "sandbox_run", "network") == {"asked": True, "allowed": False}
    assert attributes(recorded, "sandbox_run")["sandbox.error_code"] == "policy_error"
    recorded.clear()
    with holdfast.open_session(engine="fake", limits=holdfast.Limits(memory_mb=99999)):
        pass
    assert decision(recorded, "sandbox_open", "memory_mb") == {"asked": 99999, "allowed": 8192, "effective": 8192}
    recorded.clear()
    config = SandboxConfig(mode="code", limits=SandboxLimits(memory_mb=99999))
    with holdfast.toolset(config, engine="fake") as tools:
        tools["sandbox_open"].call_blocking()
    assert decision(recorded, "sandbox_open", "memory_mb") == {"asked": 99999, "allowed": 8192, "effective": 8192}


def test_a_package_that_is_none_is_not_told(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    with pytest.raises(errors.SandboxError):
        holdfast.run("1", engine="fake", packages=["six", "https://user:hunter2@host/x.whl"])
    assert decision(recorded, "sandbox_run", "pip_packages")["asked"] == ("six", "?")
    assert "hunter2" not in "".join(span.to_json() for span in recorded.get_finished_spans())


def test_a_program_that_fails_is_an_error_in_its_span(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    run("fail")
    found = spans(recorded)["sandbox_run"]
    assert (found.attributes or {})["error"] is True
    assert (found.attributes or {})["sandbox.exit_code"] == 3
    assert found.status.status_code is trace.StatusCode.ERROR


def test_a_run_that_could_not_be_is_an_error_with_its_code(recorded: InMemorySpanExporter) -> None:
    with pytest.raises(errors.EngineUnavailable):
        holdfast.run("code-secret", engine="fake", network=False, packages=["six"])
    found = spans(recorded)["sandbox_run"]
    assert (found.attributes or {})["error"] is True
    assert (found.attributes or {})["sandbox.error_code"] == "engine_unavailable"


def metric(name: str, **labels: Any) -> int:
    """What a counter says by now, or how many values a histogram has."""
    data = _READER.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for one in scope.metrics:
                for point in one.data.data_points:
                    if one.name == name and dict(point.attributes or {}) == labels:
                        return int(point.value if isinstance(point, NumberDataPoint) else getattr(point, "count", 0))
    return 0


@contextmanager
def adds(number: int, name: str, **labels: Any) -> Iterator[None]:
    before = metric(name, **labels)
    yield
    assert metric(name, **labels) - before == number, name


def test_metrics_of_runs(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    with (
        adds(2, "station_sandbox_runs_total", runtime="python", ok=True),
        adds(1, "station_sandbox_runs_total", runtime="python", ok=False),
        adds(3, "station_sandbox_run_duration_ms", runtime="python"),
    ):
        run()
        run()
        run("fail")


def test_metrics_of_sessions(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    with (
        adds(1, "station_sandbox_sessions_opened_total", runtime="bash", created=True),
        adds(1, "station_sandbox_sessions_opened_total", runtime="bash", created=False),
        adds(2, "station_sandbox_open_duration_ms", runtime="bash"),
        adds(1, "station_sandbox_execs_total", runtime="bash", ok=True),
        adds(2, "station_sandbox_execs_total", runtime="bash", ok=False),
        adds(3, "station_sandbox_exec_duration_ms", runtime="bash"),
        adds(1, "station_sandbox_sessions_closed_total", runtime="bash"),
        holdfast.open_session(runtime="bash", engine="fake", workflow="wf_metrics") as box,
        holdfast.open_session(runtime="bash", engine="fake", workflow="wf_metrics"),
    ):
        box.exec(["python3"])
        box.exec(["python3", "fail"])
        with pytest.raises(errors.CommandNotFound):
            box.exec(["missing"])
        box.close()
        box.close()


# --- code mode


def everything(box: holdfast.Session, folder: Path) -> None:
    """Each operation of a session, once."""
    secret = "path-secret"
    box.write(secret, "content-secret")
    box.read(secret)
    box.list()
    box.stat(secret)
    box.mkdir("d-secret")
    box.move(secret, "d-secret/moved-secret")
    (folder / "up-secret").write_text("upload-secret")
    box.upload(folder / "up-secret", "up-secret")
    box.download("up-secret", folder / "down-secret")
    box.delete("d-secret", recursive=True)
    box.exec(["python3", "argument-secret"], env={"NAME": "environment-secret"}, stdin="stdin-secret")
    process = box.start(["waiter", "argument-secret"], stdin=True)
    process.read()
    process.write_stdin("stdin-secret", close=True)
    with pytest.raises(TimeoutError):
        process.wait(0.01)
    process.kill()


def test_each_operation_of_a_session_is_one_span(
    recorded: InMemorySpanExporter, fake: FakeEngine, tmp_path: Path
) -> None:
    with (
        trace.get_tracer("test").start_as_current_span("AgentExecute") as outer,
        holdfast.open_session(runtime="bash", engine="fake") as box,
    ):
        everything(box, tmp_path)
    found = recorded.get_finished_spans()
    files = ("write", "read", "list", "stat", "mkdir", "move", "upload", "download", "delete")
    programs = ("exec", "exec", "exec_read", "exec_stdin", "exec_wait", "exec_kill")
    names = ["open", *(f"fs_{name}" for name in files), *programs, "close"]
    assert [span.name for span in found] == [*(f"sandbox_{name}" for name in names), "AgentExecute"]
    for span in found[:-1]:
        assert span.parent is not None and span.parent.span_id == outer.get_span_context().span_id
        assert "error" not in (span.attributes or {}), span.name


def test_the_attributes_of_code_mode(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    about = {"sandbox.engine": "fake", "sandbox.runtime": "bash"}
    with holdfast.open_session(runtime="bash", engine="fake", workflow="wf_spans") as box:
        about["sandbox.sandbox_id"] = box.key.sandbox_name
        box.exec(["python3", "fail"], timeout=7)
        process = box.start(["python3"], timeout=7)
        process.wait()
        box.write("a", "12345")
        box.read("a", max_bytes=3)
        box.list()
        with pytest.raises(FileNotFoundError):
            box.delete("missing-secret")
        box.close()
    told = attributes(recorded, "sandbox_open")
    assert told == about | {"sandbox.created": True, "sandbox.changed": False, "sandbox.workspace_lost": False}
    failed, started = [span for span in recorded.get_finished_spans() if span.name == "sandbox_exec"]
    counts = {"sandbox.stdout_bytes": 13, "sandbox.stderr_bytes": 12}
    ended = {"sandbox.exit_code": 3, "sandbox.end_cause": "completed", "error": True}
    assert failed.attributes == about | counts | ended | {"sandbox.timeout_seconds": 7}
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert started.attributes == about | {"sandbox.timeout_seconds": 7, "sandbox.status": "running"}
    waited = attributes(recorded, "sandbox_exec_wait")
    assert waited == about | counts | {"sandbox.exit_code": 0, "sandbox.end_cause": "completed"}
    assert attributes(recorded, "sandbox_fs_write") == about | {"sandbox.bytes": 5}
    assert attributes(recorded, "sandbox_fs_read") == about | {"sandbox.bytes": 3, "sandbox.truncated": True}
    assert attributes(recorded, "sandbox_fs_list") == about | {"sandbox.entries": 2, "sandbox.truncated": False}
    missing = attributes(recorded, "sandbox_fs_delete")
    assert missing == about | {"error": True, "sandbox.error_code": "not_found"}
    assert attributes(recorded, "sandbox_close") == about


WHO = holdfast.ExecutionContext(
    workflow_run_id="wf_9", agent_run_id="run_9", agent_name="coder", environment="production"
)
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("sandbox_open", {}),
    ("sandbox_exec", {"cmd": ["python3"]}),
    ("sandbox_exec", {"cmd": ["waiter"], "stream": True}),
    ("sandbox_exec_read", {"exec_id": "EXEC"}),
    ("sandbox_exec_wait", {"exec_id": "EXEC", "timeout_seconds": 1}),
    ("sandbox_fs_write", {"path": "a", "contents": ""}),
    ("sandbox_fs_read", {"path": "a"}),
    ("sandbox_fs_list", {}),
    ("sandbox_fs_delete", {"path": "a"}),
    ("sandbox_close", {}),
]


def test_a_tool_call_is_one_span_that_names_its_caller(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    who = {"workflow_run_id": "wf_9", "agent_run_id": "run_9", "agent_name": "coder", "environment": "production"}
    told = {f"sandbox.{name}": value for name, value in who.items()}
    exec_id = ""
    with holdfast.toolset(SandboxConfig(mode="code"), engine="fake", context=WHO) as tools:
        for name, arguments in CALLS:
            recorded.clear()
            known = {"exec_id": exec_id} if "exec_id" in arguments else {}
            result = tools[name].call_blocking({**arguments, **known})
            assert result["ok"], result
            exec_id = result.get("exec_id", exec_id)
            assert [span.name for span in recorded.get_finished_spans()] == [name]
            assert attributes(recorded, name).items() >= (told | {"sandbox.engine": "fake"}).items()
    recorded.clear()
    holdfast.toolset(SandboxConfig(runtime="python"), engine="fake", context=WHO)["sandbox_run"].call_blocking(
        {"code": "1"}
    )
    names = [span.name for span in recorded.get_finished_spans()]
    assert names == [*(f"sandbox.{child}" for child in CHILDREN), "sandbox_run"]
    assert attributes(recorded, "sandbox_run").items() >= told.items()


def test_a_call_that_is_refused_has_its_span_too(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    tools = holdfast.toolset(SandboxConfig(mode="code"), engine="fake", context=WHO)
    tools["sandbox_exec"].call_blocking({"cmd": "not-a-list-secret"})
    assert attributes(recorded, "sandbox_exec")["sandbox.error_code"] == "invalid_request"
    assert "secret" not in "".join(span.to_json() for span in recorded.get_finished_spans())


def test_a_tool_that_must_open_its_session_first(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    with holdfast.toolset(SandboxConfig(mode="code"), engine="fake") as tools:
        tools["sandbox_fs_list"].call_blocking()
        opened, listed = recorded.get_finished_spans()
    assert (opened.name, listed.name) == ("sandbox_open", "sandbox_fs_list")
    assert opened.parent is not None and opened.parent.span_id == _id(listed)
    assert (listed.attributes or {})["sandbox.entries"] == 0


def test_what_a_caller_does_in_between_is_no_part_of_an_exec(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    """An exec within an exec, from the first one's own callback: two spans."""

    async def work() -> None:
        async with aio.open_session(engine="fake") as box:

            async def inner(stream: str, data: bytes) -> None:
                if stream == "stdout":
                    await box.exec(["python3"])

            with telemetry.span("sandbox_exec", mask_of_tool=lambda value: value):
                await box.exec(["python3"], on_output=inner)

    anyio.run(work)
    assert [span.name for span in recorded.get_finished_spans()].count("sandbox_exec") == 2


# --- log events


def events(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "holdfast"]


def test_log_events(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        run()
    started, finished = events(caplog)
    assert (started.message, finished.message) == ("sandbox_run_started", "sandbox_run_finished")
    assert started.__dict__["sandbox_run_id"] == finished.__dict__["sandbox_run_id"]
    assert started.__dict__["sandbox_runtime"] == "python"
    assert "sandbox_image" in started.__dict__
    assert finished.__dict__["sandbox_exit_code"] == 0
    assert (finished.__dict__["sandbox_stdout_bytes"], finished.__dict__["sandbox_stderr_bytes"]) == (13, 12)
    assert finished.__dict__["sandbox_duration_ms"] > 0


def test_log_events_of_code_mode(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "holdfast"),
        holdfast.open_session(runtime="bash", engine="fake") as box,
    ):
        done = box.exec(["python3", "fail"])
        process = box.start(["python3"])
    opened, finished, started, closed = events(caplog)
    assert [opened.message, finished.message, started.message, closed.message] == [
        "sandbox_session_opened",
        "sandbox_exec_finished",
        "sandbox_exec_started",
        "sandbox_session_closed",
    ]
    for record in (opened, finished, started, closed):
        told = record.__dict__
        assert (told["sandbox_sandbox_id"], told["sandbox_engine"]) == (box.key.sandbox_name, "fake")
    assert opened.__dict__["sandbox_created"] is True
    assert opened.__dict__["sandbox_duration_ms"] > 0
    told = finished.__dict__
    assert (told["sandbox_exec_id"], told["sandbox_exit_code"], told["sandbox_end_cause"]) == (
        done.exec_id,
        3,
        "completed",
    )
    assert started.__dict__["sandbox_exec_id"] == process.id


# --- what is documented


def test_every_name_is_in_the_document(
    recorded: InMemorySpanExporter, fake: FakeEngine, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        run("fail")
        with holdfast.open_session(runtime="bash", engine="fake") as box:
            everything(box, tmp_path)
        config = SandboxConfig(runtime="python")
        holdfast.toolset(config, engine="fake", context=WHO)["sandbox_run"].call_blocking({"code": 5})
    found = recorded.get_finished_spans()
    names = {span.name for span in found}
    names |= {
        re.sub(r"(asked|allowed|effective)\..*", r"\1.NAME", key) for span in found for key in span.attributes or ()
    }
    names |= set(telemetry._COUNTERS) | set(telemetry._DURATIONS)
    for record in events(caplog):
        names |= {record.message, *(key for key in record.__dict__ if key.startswith("sandbox_"))}
    assert len(names) > 60
    document = (Path(__file__).parents[2] / "docs/telemetry.md").read_text()
    assert not {name for name in names if f"`{name}`" not in document}


# --- what is in none of them: T57


def test_no_content_is_in_any_of_them(
    recorded: InMemorySpanExporter, fake: FakeEngine, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.DEBUG):
        run()
        run("fail")
        with pytest.raises(errors.SandboxError):
            holdfast.run("code-secret", engine="fake", files={"../path-secret": "content-secret"})
        with holdfast.open_session(runtime="bash", engine="fake", env={"NAME": "environment-secret"}) as box:
            everything(box, tmp_path)
            wrong: list[Callable[[], object]] = [
                lambda: box.exec(["missing-secret"]),
                lambda: box.exec(["python3"], cwd="cwd-secret"),
                lambda: box.exec("line-secret"),
                lambda: box.exec(["python3"], env={"NOT A NAME secret": "x"}),
                lambda: box.read("missing-secret"),
                lambda: box.write("../path-secret", "x"),
                lambda: box.process("exec-secret").read(),
            ]
            for one in wrong:
                with pytest.raises(errors.SandboxError):
                    one()
    told = "".join(span.to_json() for span in recorded.get_finished_spans())
    told += "".join(str(record.__dict__) for record in caplog.records)
    data = _READER.get_metrics_data()
    told += data.to_json() if data else ""
    for name in ("sandbox_run", "sandbox_exec", "sandbox_fs_read", "sandbox_session_opened", "station_sandbox_execs_"):
        assert name in told
    assert "secret" not in told


def test_no_content_is_in_an_error(fake: FakeEngine) -> None:
    """What was passed in stays out of the words of an error, whatever was wrong with it."""
    given: dict[str, Any] = {"env": {"NAME": "environment-secret"}, "stdin": "stdin-secret"}
    with holdfast.open_session(runtime="bash", engine="fake") as box:
        wrong: list[Callable[[], object]] = [
            lambda: box.exec(["missing", "argument-secret"], **given),
            lambda: box.exec(["python3", "argument-secret\0"], **given),
            lambda: box.exec(["python3", "argument-secret"], env={"NAME": "environment-secret\0"}),
            lambda: box.exec(["python3", "argument-secret"], cwd="missing"),
            lambda: box.exec("line-secret\0"),
            lambda: box.write("../path", "content-secret"),
            lambda: box.write("path", "content-secret\ud800"),
            lambda: holdfast.run("code-secret", engine="fake", runtime="cobol", **given),
            lambda: holdfast.run("code-secret\ud800", engine="fake", **given),
            lambda: holdfast.run("code-secret", engine="fake", args=["argument-secret\0"]),
            lambda: holdfast.run("code-secret", engine="fake", files={"../path": "content-secret"}, **given),
            lambda: holdfast.run("code-secret", engine="fake", network=True, **given),
        ]
        for one in wrong:
            with pytest.raises(errors.SandboxError) as caught:
                one()
            assert "secret" not in str(caught.value)


def test_a_named_secret_is_in_nothing_that_leaves_a_tool(
    recorded: InMemorySpanExporter, fake: FakeEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's ids may hold one too, and so may the words of an error."""
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    monkeypatch.setenv("HOLDFAST_ALLOWED_SECRETS", "API_TOKEN")
    config = SandboxConfig(mode="code", secrets=("API_TOKEN",))
    who = holdfast.ExecutionContext(workflow_run_id="wf", agent_name="bot hunter2-hunter2")
    secret = "hunter2-hunter2"
    with caplog.at_level(logging.DEBUG), holdfast.toolset(config, engine="fake", context=who) as tools:
        results = [
            tools[name].call_blocking(arguments)
            for name, arguments in (
                ("sandbox_exec", {"cmd": ["python3", secret], "env": {"X": secret}}),
                ("sandbox_exec", {"cmd": [secret]}),
                ("sandbox_exec", {"command": secret, "cwd": secret}),
                ("sandbox_exec", {secret: secret}),
                ("sandbox_fs_write", {"path": secret, "contents": secret}),
                ("sandbox_fs_list", {}),
                ("sandbox_fs_read", {"path": secret}),
                ("sandbox_fs_read", {"path": f"missing {secret}"}),
                ("sandbox_fs_delete", {"path": secret}),
                ("sandbox_exec_read", {"exec_id": secret}),
                ("sandbox_open", {"session_key": secret}),
                ("sandbox_open", {"image": secret}),
                ("sandbox_close", {"sandbox_id": secret}),
                ("sandbox_close", {}),
            )
        ]
    assert [result["ok"] for result in results].count(True) >= 6
    told = json.dumps(results)
    told += "".join(span.to_json() for span in recorded.get_finished_spans())
    told += "".join(str(record.__dict__) for record in caplog.records)
    assert "bot ***" in told
    assert "hunter2" not in told


def test_without_opentelemetry_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, holdfast\nfrom holdfast.engines.fake import FakeEngine\n"
        "with FakeEngine() as engine:\n"
        "    engine.program('python3')(lambda call: 0)\n"
        "    assert holdfast.run('1', engine='fake').ok\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_the_callers_trace_is_handed_on(recorded: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("outer") as outer:
        headers = telemetry.headers()
    assert format(outer.get_span_context().trace_id, "032x") in headers["traceparent"]

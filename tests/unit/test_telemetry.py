"""Spans, metrics and log events of a run, by the names of the design; and nothing of the run's contents in them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import errors, telemetry
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


def test_the_attributes_of_a_run(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    run()
    attributes = dict(spans(recorded)["sandbox_run"].attributes or {})
    assert attributes == {
        "sandbox.runtime": "python",
        "sandbox.engine": "fake",
        "sandbox.timeout_seconds": 7,
        "sandbox.exit_code": 0,
        "sandbox.end_cause": "completed",
        "sandbox.stdout_bytes": 13,
        "sandbox.stderr_bytes": 12,
        "sandbox.artifacts_count": 3,
    }


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


def test_metrics(recorded: InMemorySpanExporter, fake: FakeEngine) -> None:
    def points() -> dict[tuple[str, Any], Any]:
        data = _READER.get_metrics_data()
        found: dict[tuple[str, Any], Any] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = (metric.name, tuple(sorted((point.attributes or {}).items())))
                        found[key] = point
        return found

    ok = ("station_sandbox_runs_total", (("ok", True), ("runtime", "python")))
    bad = ("station_sandbox_runs_total", (("ok", False), ("runtime", "python")))
    durations = ("station_sandbox_run_duration_ms", (("runtime", "python"),))
    run()
    run("fail")
    before = points()
    run()
    run()
    run("fail")
    after = points()
    assert after[ok].value - before[ok].value == 2
    assert after[bad].value - before[bad].value == 1
    assert after[durations].count - before[durations].count == 3


def test_log_events(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        run()
    started, finished = (record for record in caplog.records if record.name == "holdfast")
    assert (started.message, finished.message) == ("sandbox_run_started", "sandbox_run_finished")
    assert started.__dict__["sandbox_run_id"] == finished.__dict__["sandbox_run_id"]
    assert started.__dict__["sandbox_runtime"] == "python"
    assert "sandbox_image" in started.__dict__
    assert finished.__dict__["sandbox_exit_code"] == 0
    assert (finished.__dict__["sandbox_stdout_bytes"], finished.__dict__["sandbox_stderr_bytes"]) == (13, 12)
    assert finished.__dict__["sandbox_duration_ms"] > 0


def test_no_content_is_in_any_of_them(
    recorded: InMemorySpanExporter, fake: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        run()
        run("fail")
        with pytest.raises(errors.SandboxError):
            holdfast.run("code-secret", engine="fake", files={"../path-secret": "content-secret"})
    told = "".join(span.to_json() for span in recorded.get_finished_spans())
    told += "".join(str(record.__dict__) for record in caplog.records)
    assert "sandbox_run" in told
    assert "secret" not in told


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

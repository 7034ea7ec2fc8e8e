"""`--otel`: what a command did, on the terminal or in a collector; whole, also when it is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .conftest import PATIENCE, Cli

pytestmark = pytest.mark.engines


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, and keeps what each path was sent."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        super().__init__(("127.0.0.1", 0), _Taker)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> dict[str, Any]:
        found = [ExportTraceServiceRequest.FromString(body) for body in self.bodies.get("/v1/traces", [])]
        return {
            span.name: span
            for one in found
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    def metrics(self) -> set[str]:
        found = [ExportMetricsServiceRequest.FromString(body) for body in self.bodies.get("/v1/metrics", [])]
        return {
            metric.name
            for one in found
            for resource in one.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def events(self) -> list[str]:
        found = [ExportLogsServiceRequest.FromString(body) for body in self.bodies.get("/v1/logs", [])]
        return [
            record.event_name
            for one in found
            for resource in one.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


class _Taker(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def quiet(cli: Cli) -> Cli:
    for name in [name for name in cli.env if name.startswith(("OTEL_", "TRACEPARENT"))]:
        del cli.env[name]
    return cli


def test_console_writes_lines_of_json_beside_the_programs_output(quiet: Cli) -> None:
    done = quiet(
        "--otel", "console", "run", "-c", "print('output-' + 'secret')", "-e", "NAME=env-secret", "--", "arg-secret"
    )
    assert (done.returncode, done.stdout) == (0, "output-secret\n")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    spans = {line["name"]: line for line in lines if "context" in line}
    assert spans["sandbox_run"]["attributes"]["sandbox.exit_code"] == 0
    assert spans["sandbox_run"]["parent_id"] == spans["holdfast run"]["context"]["span_id"]
    assert [line["body"] for line in lines if "body" in line] == ["sandbox_run_started", "sandbox_run_finished"]
    assert "station_sandbox_runs_total" in done.stderr
    assert "secret" not in done.stderr


def test_without_it_nothing_is_said(quiet: Cli) -> None:
    assert quiet("run", "-c", "print(1)").stderr == ""


def test_the_standard_variables_name_a_collector(quiet: Cli, collector: Collector) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    quiet.env["TRACEPARENT"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    done = quiet("run", "-c", "print(1)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    spans = collector.spans()
    assert spans["sandbox_run"].trace_id.hex() == "0af7651916cd43dd8448eb211c80319c", "the caller's trace goes on"
    assert spans["holdfast run"].parent_span_id.hex() == "b7ad6b7169203331"
    assert collector.metrics() == {"station_sandbox_runs_total", "station_sandbox_run_duration_ms"}
    assert collector.events() == ["sandbox_run_started", "sandbox_run_finished"]
    collector.bodies.clear()
    quiet.env["OTEL_SDK_DISABLED"] = "true"
    assert quiet.ok("run", "-c", "print(1)") == "1\n"
    assert not collector.bodies


def test_one_signal_can_have_a_collector_and_another_be_off(quiet: Cli, collector: Collector) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{collector.url}/v1/traces"
    assert quiet("run", "-c", "pass").stderr == ""
    assert set(collector.bodies) == {"/v1/traces"}
    collector.bodies.clear()
    del quiet.env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    quiet.env.update(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_METRICS_EXPORTER="none")
    assert quiet("run", "-c", "pass").stderr == ""
    assert set(collector.bodies) == {"/v1/traces", "/v1/logs"}


def test_a_session_from_the_shell(quiet: Cli, collector: Collector) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    quiet.ok("open", "--workflow", "demo")
    quiet.ok("exec", "--workflow", "demo", "--", "true")
    quiet.ok("close", "--workflow", "demo")
    assert {"sandbox_open", "sandbox_exec", "sandbox_close", "holdfast exec"} <= set(collector.spans())
    assert {"sandbox_session_opened", "sandbox_exec_finished", "sandbox_session_closed"} <= set(collector.events())
    assert {"station_sandbox_execs_total", "station_sandbox_sessions_opened_total"} <= collector.metrics()


def test_what_happened_is_told_after_ctrl_c_too(quiet: Cli, collector: Collector) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    with quiet.start("run", "-c", "print('begun', flush=True)\nwhile True: pass") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGINT
    found = collector.spans()["sandbox_run"]
    attributes = {one.key: one.value for one in found.attributes}
    assert attributes["error"].bool_value is True
    assert "sandbox_run_finished" in collector.events()


def test_a_collector_that_is_not_there_costs_a_word_and_not_the_result(quiet: Cli) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    done = quiet("run", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("holdfast: telemetry was not delivered: ")


@pytest.mark.parametrize(("words", "status"), [(["--otel", "otlp"], 125), ([], 0)], ids=["asked", "by variable"])
def test_without_the_extra_the_error_names_it(quiet: Cli, words: list[str], status: int) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    code = "import sys; sys.modules['opentelemetry.sdk.trace'] = None; from holdfast.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "config", "--changed"],
        env=quiet.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == status
    assert "the package opentelemetry.sdk.trace is not installed; next: pip install 'holdfast[otel]'" in done.stderr
    assert bool(done.stdout) == (status == 0)


def test_a_protocol_that_is_not_spoken(quiet: Cli) -> None:
    quiet.env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    done = quiet("--otel", "otlp", "config")
    assert done.returncode == 125
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in done.stderr
    assert quiet("config").returncode == 0

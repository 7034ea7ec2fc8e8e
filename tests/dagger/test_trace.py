"""Dagger's own spans are part of the caller's trace, wherever it sends them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.engines.dagger.engine import DaggerEngine

from .conftest import PATIENCE

pytestmark = pytest.mark.engines


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, and keeps the bodies."""

    bodies: list[bytes]

    def do_POST(self) -> None:
        self.bodies.append(self._body())
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Collector,), {"bodies": bodies}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


CODE = """
import sys, holdfast
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("t").start_as_current_span("AgentExecute") as span:
    assert holdfast.run("print('inside-secret')").ok
print(format(span.get_span_context().trace_id, "032x"))
"""


def test_the_engines_spans_nest_under_ours(
    dagger: DaggerEngine, collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", where)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    trace_id = bytes.fromhex(done.stdout.strip())
    assert [body for body in bodies if trace_id in body and b"withExec" in body]
    assert not [body for body in bodies if b"inside-secret" in body]

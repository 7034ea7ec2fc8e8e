"""`--otel`: where the spans, metrics and log events of a command go. The library itself only uses OpenTelemetry's API.

`console` writes them to stderr, one JSON object to a line; `otlp` sends them to the collector that the standard
variables OTEL_EXPORTER_OTLP_* name, and does so without the option too where they name one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from .. import __version__
from ._common import FAILED, say

_SIGNALS = ("traces", "metrics", "logs")
_PATIENCE = 3.0
"""seconds for a collector to take what is left when a command ends"""


def wanted(environ: Mapping[str, str]) -> str | None:
    """Whether the standard variables ask for it without `--otel`."""
    named = ["OTEL_EXPORTER_OTLP_ENDPOINT", *(f"OTEL_EXPORTER_OTLP_{name.upper()}_ENDPOINT" for name in _SIGNALS)]
    return "otlp" if any(environ.get(name) for name in named) else None


def set_up(ctx: click.Context, asked: str | None, environ: Mapping[str, str]) -> None:
    """Export for as long as a command's context lives.

    Raises:
        ClickException: it was asked for and cannot be. Where only variables ask, which may be meant for others, that is
            no reason not to work.
    """
    where = asked or wanted(environ)
    if not where or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        stops = [_SET_UP[name](where) for name in _signals(where, environ)]
    except (ModuleNotFoundError, ValueError) as error:
        text = f"no telemetry: {error}"
        if isinstance(error, ModuleNotFoundError):
            text = f"no telemetry: the package {error.name} is not installed; next: pip install 'holdfast[otel]'"
        if asked:
            raise _Failed(text) from error
        say(text)
    else:
        ctx.with_resource(_exported(stops, str(ctx.invoked_subcommand), environ))


class _Failed(click.ClickException):
    exit_code = FAILED


@contextmanager
def _exported(stops: list[Callable[[], Any]], command: str, environ: Mapping[str, str]) -> Iterator[None]:
    """One span around the command, which continues the trace of TRACEPARENT."""
    said = _Said()
    logging.getLogger("opentelemetry").addHandler(said)
    try:
        with ExitStack() as stack:
            _continue(environ, stack)
            from opentelemetry import trace

            stack.enter_context(trace.get_tracer("holdfast").start_as_current_span(f"holdfast {command}"))
            yield
    finally:
        _flush(stops, said)


class _Said(logging.Handler):
    """What the SDK says when it cannot deliver; it says it many times."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _signals(where: str, environ: Mapping[str, str]) -> list[str]:
    """Those that are not switched off, and whose collector is known: the general one's, or their own."""
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if where == "otlp" and protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and only http/protobuf is spoken here")
    on = [name for name in _SIGNALS if environ.get(f"OTEL_{name.upper()}_EXPORTER") != "none"]
    own = [name for name in on if environ.get(f"OTEL_EXPORTER_OTLP_{name.upper()}_ENDPOINT")]
    return own if where == "otlp" and own and not environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") else on


def _continue(environ: Mapping[str, str], stack: ExitStack) -> None:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = {name: environ[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in environ}
    stack.callback(context.detach, context.attach(TraceContextTextMapPropagator().extract(given)))


def _flush(stops: list[Callable[[], Any]], said: _Said) -> None:
    """Send what is left, and do not wait long for a collector that does not answer."""
    threads = [threading.Thread(target=stop, daemon=True) for stop in stops]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if said.last or any(thread.is_alive() for thread in threads):
        say(f"telemetry was not delivered: {said.last[:300] or f'nobody took it within {_PATIENCE:g} s'}")


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over what is given here first.
    return Resource({"service.name": "holdfast", "service.version": __version__}).merge(_told_by_environment())


def _told_by_environment() -> Any:
    from opentelemetry.sdk.resources import OTELResourceDetector

    return OTELResourceDetector().detect()


def _traces(where: str) -> Callable[[], Any]:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    if where == "console":
        exporter = ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _metrics(where: str) -> Callable[[], Any]:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader

    exporter: MetricExporter
    if where == "console":
        exporter = ConsoleMetricExporter(out=sys.stderr, formatter=lambda data: f"{data.to_json(indent=None)}\n")
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter()
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], resource=_resource(), shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider.shutdown


def _logs(where: str) -> Callable[[], Any]:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import (
        BatchLogRecordProcessor,
        ConsoleLogRecordExporter,
        SimpleLogRecordProcessor,
    )

    provider = LoggerProvider(resource=_resource(), shutdown_on_exit=False)
    if where == "console":
        exporter = ConsoleLogRecordExporter(out=sys.stderr, formatter=lambda record: f"{record.to_json(indent=None)}\n")
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    events = logging.getLogger("holdfast")
    events.addHandler(_Events(provider.get_logger("holdfast")))
    events.setLevel(logging.INFO)
    return provider.shutdown


_SET_UP: dict[str, Callable[[str], Callable[[], Any]]] = {"traces": _traces, "metrics": _metrics, "logs": _logs}


class _Events(logging.Handler):
    """Hands our log events on as OpenTelemetry's."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        from opentelemetry import context
        from opentelemetry._logs import LogRecord, SeverityNumber

        if record.levelno > logging.INFO:  # words for whoever sits there, which would be shown if we were not here
            say(record.getMessage())
            return
        told = {name.replace("_", ".", 1): value for name, value in record.__dict__.items() if _ours(name, value)}
        name = record.getMessage()
        self._target.emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                context=context.get_current(),
                severity_text=record.levelname,
                severity_number=SeverityNumber.INFO,
                body=name,
                event_name=name,
                attributes=told,
            )
        )


def _ours(name: str, value: Any) -> bool:
    return name.startswith("sandbox_") and value is not None

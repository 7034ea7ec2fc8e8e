"""Spans, metrics and log events: every name in one place. opentelemetry-api only, and only if somebody uses it.

spans         `sandbox_run`, and in it `sandbox.connect`, `sandbox.prepare_files`, `sandbox.exec`,
              `sandbox.collect_outputs`, `sandbox.collect_artifacts`
attributes    `sandbox.runtime`, `.image`, `.engine`, `.timeout_seconds`, `.exit_code`, `.end_cause`, `.stdout_bytes`,
              `.stderr_bytes`, `.artifacts_count`, `.error_code`, and `error`
metrics       counter `station_sandbox_runs_total` by runtime and ok,
              histogram `station_sandbox_run_duration_ms` by runtime
log events    `sandbox_run_started` and `sandbox_run_finished`, of the logger `holdfast`; their fields are attributes of
              the record, behind `sandbox_`

No code, no command line, no environment, no file and no output is in any of them.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

_LOGGER = logging.getLogger("holdfast")
Value = str | int | float | bool | None


class Span(Protocol):
    """What may be told about a piece of work."""

    def set(self, **attributes: Value) -> None: ...


class _Silent:
    def set(self, **attributes: Value) -> None:
        return


class _Recorded:
    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, **attributes: Value) -> None:
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute("error" if name == "error" else f"sandbox.{name}", value)


def _used() -> bool:
    """Whether anything in this process uses OpenTelemetry; if not, its import is saved, and nobody would see it."""
    return "opentelemetry.trace" in sys.modules


@contextmanager
def span(name: str, **attributes: Value) -> Iterator[Span]:
    """A span around the block, a child of the caller's. An error that leaves the block is told by its kind only."""
    if not _used():
        yield _Silent()
        return
    from opentelemetry import trace

    tracer = trace.get_tracer("holdfast")
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as opened:
        told = _Recorded(opened)
        told.set(**attributes)
        try:
            yield told
        except BaseException as error:
            kind = getattr(error, "code", type(error).__name__)
            told.set(error=True, error_code=str(kind))
            opened.set_status(trace.Status(trace.StatusCode.ERROR, str(kind)))
            raise


def failed(span: Span, cause: str) -> None:
    """Mark a span whose program did not end well."""
    span.set(error=True)
    if isinstance(span, _Recorded):
        from opentelemetry import trace

        span._span.set_status(trace.Status(trace.StatusCode.ERROR, cause))


def headers() -> dict[str, str]:
    """The caller's trace, as HTTP hands it on."""
    found: dict[str, str] = {}
    if _used():
        from opentelemetry import propagate

        propagate.inject(found)
    return found


@functools.cache
def _instruments() -> tuple[Any, Any]:
    from opentelemetry import metrics

    meter = metrics.get_meter("holdfast")
    return (
        meter.create_counter("station_sandbox_runs_total", description="runs that ended"),
        meter.create_histogram("station_sandbox_run_duration_ms", unit="ms", description="from request to result"),
    )


def count_run(runtime: str, ok: bool, duration_ms: float) -> None:
    if _used() or "opentelemetry.metrics" in sys.modules:
        total, durations = _instruments()
        total.add(1, {"runtime": runtime, "ok": ok})
        durations.record(duration_ms, {"runtime": runtime})


def event(name: str, fields: Mapping[str, Value]) -> None:
    """A structured log event: the message is its name, the fields are attributes of the record."""
    _LOGGER.info(name, extra={f"sandbox_{key}": value for key, value in fields.items()})

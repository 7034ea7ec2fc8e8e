"""Spans, metrics and log events: every name in one place. opentelemetry-api only, and only if somebody uses it.

spans         `sandbox_run`, and in it `sandbox.connect`, `sandbox.prepare_files`, `sandbox.exec`,
              `sandbox.collect_outputs`, `sandbox.collect_artifacts`;
              in code mode one for each operation: `sandbox_open`, `sandbox_close`, `sandbox_exec`, `sandbox_exec_read`,
              `sandbox_exec_wait`, `sandbox_exec_kill`, `sandbox_exec_stdin`, and `sandbox_fs_` with `write`, `read`,
              `list`, `stat`, `delete`, `mkdir`, `move`, `upload`, `download`; `sandbox_stage_file`,
              `sandbox_publish_file`
attributes    `error`, and behind `sandbox.`: `runtime`, `image`, `engine`, `sandbox_id`, `timeout_seconds`,
              `exit_code`, `end_cause`, `status`, `stdout_bytes`, `stderr_bytes`, `bytes`, `entries`, `truncated`,
              `artifacts_count`, `created`, `changed`, `workspace_lost`, `error_code`; of a tool's caller
              `workflow_run_id`, `agent_run_id`, `agent_name`, `environment`; of the operator's decision `asked.*`,
              `allowed.*`, `effective.*`
metrics       counters `station_sandbox_runs_total`, `station_sandbox_execs_total` by runtime and ok,
              `station_sandbox_sessions_opened_total` by runtime and created, `station_sandbox_sessions_closed_total` by
              runtime; histograms `station_sandbox_run_duration_ms`, `station_sandbox_exec_duration_ms`,
              `station_sandbox_open_duration_ms` by runtime
log events    `sandbox_run_started`, `sandbox_run_finished`, `sandbox_session_opened`, `sandbox_session_closed`,
              `sandbox_exec_started`, `sandbox_exec_finished`, of the logger `holdfast`; their fields are attributes of
              the record, behind `sandbox_`

No code, no command line, no environment, no path, no file and no output is in any of them.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import ExecResult

_LOGGER = logging.getLogger("holdfast")
Mask = Callable[[Any], Any]
Value = str | int | float | bool | Sequence[str] | None

_COUNTERS = {
    "station_sandbox_runs_total": "runs that ended",
    "station_sandbox_execs_total": "commands of sessions that ended while somebody waited",
    "station_sandbox_sessions_opened_total": "sessions that were made or found",
    "station_sandbox_sessions_closed_total": "sessions that were closed, and not those that ended by their own clock",
}
_DURATIONS = {
    "station_sandbox_run_duration_ms": "from request to result",
    "station_sandbox_exec_duration_ms": "from request to result",
    "station_sandbox_open_duration_ms": "until a session can be used",
}


class Span:
    """What may be told about a piece of work; this one tells nobody."""

    recording = False
    """whether anybody listens: what is costly to find out need not be found out otherwise"""

    def set(self, **attributes: Value) -> None:
        """Attributes by their names without `sandbox.`; None is left out."""

    def failed(self, cause: str) -> None:
        """It did not end well, and no error says so: a program failed."""

    def ended(self, result: ExecResult) -> None:
        """How a program ended."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


_SILENT = Span()
_tools_own: ContextVar[_Recorded | None] = ContextVar("holdfast_tools_own", default=None)
"""the span of a tool, until the operation that it is about has joined it"""
_mask: ContextVar[Mask | None] = ContextVar("holdfast_mask", default=None)
"""takes a tool's secrets out of what is told while it works"""


class _Recorded(Span):
    def __init__(self, name: str, attributes: Mapping[str, Value], mask_of_tool: Mask | None) -> None:
        self.name = name
        self._attributes = attributes
        self._of_tool = mask_of_tool is not None
        self._mask = mask_of_tool or _mask.get()

    def __enter__(self) -> Span:
        from opentelemetry import trace

        tracer = trace.get_tracer("holdfast")
        self._scope = tracer.start_as_current_span(self.name, record_exception=False, set_status_on_exception=False)
        self._span = self._scope.__enter__()
        self.recording = self._span.is_recording()
        self._before = _tools_own.set(self if self._of_tool else None), _mask.set(self._mask)
        self.set(**self._attributes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tools_own.reset(self._before[0])
        _mask.reset(self._before[1])
        if error is not None:  # told by its kind only: its words may hold what nobody else shall see
            code = str(getattr(error, "code", type(error).__name__))
            self.set(error_code=code)
            self.failed(code)
        self._scope.__exit__(None, None, None)

    def set(self, **attributes: Value) -> None:
        if self.recording:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(f"sandbox.{name}", self._mask(value) if self._mask else value)

    def failed(self, cause: str) -> None:
        from opentelemetry import trace

        self._span.set_attribute("error", True)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, cause))

    def ended(self, result: ExecResult) -> None:
        self.set(
            exit_code=result.exit_code,
            end_cause=result.end_cause.value,
            stdout_bytes=result.stdout_total_bytes,
            stderr_bytes=result.stderr_total_bytes,
        )
        if not result.ok:
            self.failed(result.end_cause.value)


class _Joined(Span):
    """An operation that a tool's span is about: it goes on with that one."""

    def __init__(self, own: _Recorded, attributes: Mapping[str, Value]) -> None:
        self._own, self._attributes = own, attributes

    def __enter__(self) -> Span:
        self._before = _tools_own.set(None)
        self._own.set(**self._attributes)
        return self._own

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tools_own.reset(self._before)


def span(name: str, attributes: Mapping[str, Value] | None = None, *, mask_of_tool: Mask | None = None) -> Span:
    """A span around a `with` block, a child of the caller's.

    Each operation has one: a tool opens it, and what the tool calls joins it if it has the same name. A tool says so by
    its mask, which takes its secrets out of all attributes meanwhile.
    """
    # If nothing in this process uses OpenTelemetry, nobody would see it, and its import is saved.
    found = sys.modules.get("opentelemetry.trace")
    if found is None or isinstance(found.get_tracer_provider(), found.ProxyTracerProvider):
        return _SILENT
    own = _tools_own.get()
    if own is not None and own.name == name:
        return _Joined(own, attributes or {})
    return _Recorded(name, attributes or {}, mask_of_tool)


def headers() -> dict[str, str]:
    """The caller's trace, as HTTP hands it on."""
    found: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate

        propagate.inject(found)
    return found


@functools.cache
def _instruments() -> dict[str, Any]:
    from opentelemetry import metrics

    meter = metrics.get_meter("holdfast")
    counters = {name: meter.create_counter(name, description=text) for name, text in _COUNTERS.items()}
    durations = {name: meter.create_histogram(name, unit="ms", description=text) for name, text in _DURATIONS.items()}
    return {**counters, **durations}


def count(name: str, runtime: str, *, duration: tuple[str, float] | None = None, **labels: bool) -> None:
    """Add one to the counter `station_sandbox_NAME_total`, and milliseconds to `station_sandbox_NAME_duration_ms`."""
    if "opentelemetry.metrics" in sys.modules:
        found = _instruments()
        found[f"station_sandbox_{name}_total"].add(1, {"runtime": runtime, **labels})
        if duration:
            found[f"station_sandbox_{duration[0]}_duration_ms"].record(duration[1], {"runtime": runtime})


def event(name: str, fields: Mapping[str, Value]) -> None:
    """A structured log event: the message is its name, the fields are attributes of the record."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _LOGGER.info(name, extra={f"sandbox_{key}": value for key, value in fields.items()})

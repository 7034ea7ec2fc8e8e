"""What each tool gives back, as JSON Schema."""

from __future__ import annotations

from typing import Any

_STRING, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
FAILED: dict[str, Any] = {"ok": _BOOLEAN, "error": _STRING, "error_code": _STRING, "hint": _STRING}
ENDED: dict[str, Any] = {
    **FAILED,
    "exit_code": {"type": ["integer", "null"], "description": "null: it ended by a signal, or nobody knows"},
    "end_cause": {**_STRING, "description": "completed, timeout, oom, killed, disk_full …"},
    "signal": {"type": ["integer", "null"]},
    "duration_ms": _INTEGER,
    "stdout": _STRING,
    "stderr": _STRING,
    "encoding": _STRING,
    "truncated": _BOOLEAN,
    "stdout_total_bytes": _INTEGER,
    "stderr_total_bytes": _INTEGER,
    "cpu_ms": _INTEGER,
    "peak_memory_bytes": _INTEGER,
    "left_processes": {"type": "array", "items": _STRING},
}
_ARTIFACT = {"path": _STRING, "size_bytes": _INTEGER}
RUN: dict[str, Any] = {
    "type": "object",
    "properties": {
        **ENDED,
        "runtime": _STRING,
        "engine": _STRING,
        "artifacts": {
            "type": "array",
            "items": {"type": "object", "properties": {**_ARTIFACT, "content_base64": _STRING}},
        },
        "artifacts_skipped": {"type": "array", "items": {"type": "object", "properties": _ARTIFACT}},
        "artifacts_skipped_count": _INTEGER,
        "artifacts_published": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {**_ARTIFACT, **dict.fromkeys(("file_key", "bucket", "digest"), _STRING)},
            },
        },
        "artifacts_unpublished": _STRING,
        "artifacts_unlisted": _BOOLEAN,
        "cached": _BOOLEAN,
        "limits": {"type": "object"},
    },
    "required": ["ok"],
}


def _array(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


_CHUNK = {"seq": _INTEGER, "stream": _STRING, "text": _STRING}
_ENTRY = {"path": _STRING, "type": _STRING, "size": _INTEGER, "mode": _STRING, "mtime_unix": _INTEGER}
_STATUS = {**_STRING, "enum": ["completed", "running"]}
_LIMITS = {"type": "object"}
_FIELDS: dict[str, dict[str, Any]] = {
    "sandbox_open": {
        **dict.fromkeys(("sandbox_id", "session_id", "image", "workdir", "status", "engine"), _STRING),
        **dict.fromkeys(("created", "changed", "workspace_lost"), _BOOLEAN),
        "limits": _LIMITS,
    },
    "sandbox_exec": {**ENDED, "exec_id": _STRING, "status": _STATUS, "limits": _LIMITS},
    "sandbox_exec_read": {
        "chunks": _array(_CHUNK),
        "next_seq": _INTEGER,
        "expired_bytes": _INTEGER,
        "done": _BOOLEAN,
    },
    "sandbox_exec_wait": {**ENDED, "done": _BOOLEAN, "status": _STATUS},
    "sandbox_fs_write": {"path": _STRING, "size_bytes": _INTEGER},
    "sandbox_fs_read": {
        **dict.fromkeys(("path", "contents", "contents_b64"), _STRING),
        "truncated": _BOOLEAN,
        "size_bytes": _INTEGER,
    },
    "sandbox_fs_list": {"entries": _array(_ENTRY), "truncated": _BOOLEAN},
    "sandbox_fs_delete": {"deleted": _STRING, "path": _STRING},
    "sandbox_close": {"closed": _BOOLEAN, "session_id": _STRING},
}
CODE: dict[str, dict[str, Any]] = {
    name: {"type": "object", "properties": {**FAILED, **fields}, "required": ["ok"]} for name, fields in _FIELDS.items()
}
"""tool of code mode -> what it gives back"""

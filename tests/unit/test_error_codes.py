"""How errors look to a model."""

from __future__ import annotations

import pytest

from holdfast import errors


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (errors.EngineFailed("x"), "engine_failed", "CONTAINER_START_FAILED"),
        (errors.ImageNotAllowed("x"), "image_not_allowed", "CONTAINER_START_FAILED"),
        (errors.RegistryUnreachable("x"), "registry_unreachable", "CONTAINER_START_FAILED"),
        (errors.LimitsNotAvailable("x"), "limits_not_available", "CONTAINER_START_FAILED"),
        (errors.CommandNotFound("x"), "command_not_found", "EXEC_FAILED"),
        (errors.SessionLost("x"), "session_lost", "EXEC_FAILED"),
        (errors.ProtocolMismatch("x"), "protocol_mismatch", "EXEC_FAILED"),
        (errors.SessionNotFound("x"), "session_not_found", None),
        (errors.PathNotAllowed("x"), "path_not_allowed", None),
        (errors.PolicyError("x"), "policy_error", None),
    ],
)
def test_an_error_as_a_tool_tells_it(error: errors.SandboxError, code: str, reason: str | None) -> None:
    wanted = {"ok": False, "error": "x", "error_code": code} | ({"reason": reason} if reason else {})
    assert error.as_tool() == wanted


def test_what_came_from_a_sandbox_does_not_drive_a_terminal() -> None:
    assert errors.EngineFailed("a\x1b[31mb\n").as_tool()["error"] == "a\\x1b[31mb"

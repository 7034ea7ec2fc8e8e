"""One tool: a name, a description for a model, the schema of its input, and a call that answers whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from .. import errors, telemetry
from ..mistakes import explain, shown, suggestion
from ..secrets import Masker
from .inputs import Input

Result = dict[str, Any]
_HINTS = {
    "invalid_request": "mend the arguments and call again",
    "policy_error": "do without it, or ask the operator",
    "image_not_allowed": "use an image that is allowed, or leave image out",
    "engine_unavailable": "this is not your mistake: say that the sandbox is not available",
    "engine_failed": "try once more; if it fails again, say that the sandbox is not available",
    "session_not_found": "call sandbox_open again; files of the old session are gone",
    "session_closed": "call sandbox_open again; files of the old session are gone",
    "session_lost": "call sandbox_open again, and look what became of your files before you repeat the call",
    "command_not_found": "it is not installed here; use another program, or look with: ls /usr/bin",
    "cwd_not_found": "make the folder first, or leave cwd out",
    "not_found": "look with sandbox_fs_list which files there are",
    "path_not_allowed": "use a path inside the workspace, without ..",
    "is_a_directory": "name a file, or list the folder with sandbox_fs_list",
    "directory_not_empty": "say recursive: true to delete it with all that is in it",
    "already_exists": "say overwrite: true to replace it",
    "file_too_large": "write it in parts, or make it smaller",
    "workspace_full": "delete what you do not need",
    "too_many_files": "delete what you do not need",
    "exec_not_found": "only the last commands are kept; start it again",
    "staging_unavailable": "this is not your mistake: say that the object store is not available",
    "staging_denied": "this is not your mistake: say that the object store does not allow it",
    "staging_lost": "try once more; if it fails again, say that the object store is not available",
    "staging_full": "this is not your mistake: say that the object store is full",
    "staged_file_not_found": "check the file_key; ask who has put the file there",
    "staged_file_damaged": "the file cannot be used: ask for it to be uploaded again",
    "staged_file_is_link": "use the file_key of the file itself",
    "staged_file_changed": "try again",
    "packages_failed": "check the names and versions of the packages",
}


_ERROR_CHARACTERS = 4000
_MISTAKES_TOLD = 5


@dataclass(frozen=True, slots=True)
class Tool:
    """Call it with what the model sent: `await tool.call({...})`."""

    name: str
    description: str
    input: type[Input]
    output_schema: dict[str, Any]
    handler: Callable[[Any], Awaitable[Result]]
    masker: Masker
    attributes: Mapping[str, telemetry.Value] = field(default_factory=dict[str, telemetry.Value])
    """what its spans say of who calls"""

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.input.schema_for_models()

    def call_blocking(self, arguments: Mapping[str, Any] | None = None) -> Result:
        """`call`, for callers without an event loop. Of one toolset, use one of the two."""
        from ..sync import wait_for

        return wait_for(lambda: self.call(arguments))

    async def call(self, arguments: Mapping[str, Any] | None = None) -> Result:
        """The tool's result. What went wrong is one too: `ok` is False, and `error`, `error_code` and `hint` say more.

        Only cancellation, and what is a mistake of ours, leaves it as an exception.
        """
        try:
            with telemetry.span(self.name, self.attributes, mask_of_tool=self.masker.value):
                return self.masker.value(await self.handler(self._asked(arguments)))
        except errors.SandboxError as error:
            return self.masker.value(failure(error))

    def _asked(self, arguments: Any) -> Input:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise errors.InvalidRequest(f"the arguments must be an object with keys, not {shown(arguments)}")
        try:
            return self.input.model_validate(dict(arguments or {}))
        except ValidationError as error:
            raise _refused(error, self.input) from None  # whose words would hold what was passed


def failure(error: errors.SandboxError) -> Result:
    """An error as a model gets it."""
    told = error.as_tool()
    if len(told["error"]) > _ERROR_CHARACTERS:
        told["error"] = f"{told['error'][:_ERROR_CHARACTERS]}\n[...truncated at {_ERROR_CHARACTERS} chars...]"
    hint = _HINTS.get(error.code)
    return {**told, **({"hint": hint} if hint else {})}


def _refused(error: ValidationError, kind: type[Input]) -> errors.InvalidRequest:
    said = []
    for found in error.errors(include_url=False, include_context=True)[:_MISTAKES_TOLD]:
        where = ".".join(map(_key, found["loc"]))
        if found["type"] == "missing":
            said.append(f"{where} is needed")
        elif found["type"] == "extra_forbidden":
            said.append(f"{where}: there is no such argument{suggestion(where, kind.model_fields)}")
        else:
            said.append(f"{where}: {explain(found)}" if where else found["msg"].removeprefix("Value error, "))
    return errors.InvalidRequest("; ".join(said))


def _key(part: Any) -> str:
    """A name from a model's arguments, which may be anything."""
    text = errors.printable(str(part))
    return f"{text[:60]}…" if len(text) > 60 else text

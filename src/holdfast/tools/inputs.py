"""What a model may pass to each tool. The published schema has the names of the PRD; the overview's are taken too.

Both spellings at once are a mistake, and so is a key that does not exist: the model is told, and can mend its call.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[int, Field(ge=1, le=3600)]
SandboxId = Annotated[str | None, Field(description="from sandbox_open; the last one opened if left out")]


class Input(BaseModel):
    """Base of all inputs."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    other_names: ClassVar[dict[str, str]] = {}
    """the overview's name -> ours"""

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        out = dict(given)
        for other, name in cls.other_names.items():
            if other in out:
                if name in out:
                    raise ValueError(f"{other} and {name} are two names for one thing; give one of them")
                out[name] = out.pop(other)
        return out

    @classmethod
    def schema_for_models(cls) -> dict[str, Any]:
        """JSON Schema, without what a model does not need."""
        schema = cls.model_json_schema()
        properties = {name: _plain(found) for name, found in schema.get("properties", {}).items()}
        out = {"type": "object", "properties": properties, "additionalProperties": False}
        return out | ({"required": schema["required"]} if "required" in schema else {})


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """`X or null` is X that may be left out; titles and null defaults say nothing."""
    out = {key: value for key, value in found.items() if key not in ("title", "default", "anyOf")}
    for choice in found.get("anyOf", ()):
        if choice != {"type": "null"}:
            out = {**_plain(choice), **out}
    if isinstance(out.get("items"), dict):
        out["items"] = _plain(out["items"])
    if found.get("default") not in (None, [], {}):
        out["default"] = found["default"]
    return out


class RunInput(Input):
    code: Annotated[str, Field(description="Source code to run.")]
    runtime: Annotated[Literal["python", "node", "bash"] | None, Field(description="language of the code")] = None
    args: Annotated[list[str], Field(description="command line arguments")] = []
    env: Annotated[dict[str, str], Field(description="environment variables")] = {}
    files: Annotated[dict[str, str], Field(description="path -> contents, written to the working directory first")] = {}
    stdin: Annotated[str | None, Field(description="what the program reads from stdin")] = None
    artifacts: Annotated[list[str], Field(description="files to return, such as out/*.png or **/*.csv")] = []
    timeout_seconds: Annotated[Seconds | None, Field(description="the program is killed after so long")] = None


class StagedRunInput(RunInput):
    """Where an object store is configured."""

    stage: Annotated[
        dict[str, str], Field(description="path -> file_key of the object store, put into the working directory first")
    ] = {}


class OpenInput(Input):
    session_key: Annotated[str | None, Field(description="name of another session of this workflow")] = None
    image: Annotated[str | None, Field(description="python, node, linux, or an allowed container image")] = None


class ExecInput(Input):
    other_names: ClassVar[dict[str, str]] = {"workdir": "cwd"}

    sandbox_id: SandboxId = None
    cmd: Annotated[list[str] | None, Field(description='program and arguments, such as ["python3", "main.py"]')] = None
    command: Annotated[str | None, Field(description="or a shell line, such as: make test 2>&1 | tail")] = None
    cwd: Annotated[str | None, Field(description="folder to run in; the workspace if left out")] = None
    env: Annotated[dict[str, str], Field(description="environment variables")] = {}
    timeout_seconds: Annotated[Seconds | None, Field(description="killed, with all it started, after so long")] = None
    stream: Annotated[bool, Field(description="return at once; poll with sandbox_exec_read and _wait")] = False

    @model_validator(mode="after")
    def _one_command(self) -> Self:
        if (self.cmd is None) == (self.command is None):
            raise ValueError("give cmd (a list) or command (a shell line), and not both")
        if not (self.cmd or (self.command or "").strip()):
            raise ValueError("the command is empty")
        return self


class ExecReadInput(Input):
    sandbox_id: SandboxId = None
    exec_id: Annotated[str, Field(description="from sandbox_exec with stream")]
    since_seq: Annotated[int, Field(ge=0, description="next_seq of the read before; 0 is the start")] = 0
    max_chunks: Annotated[int, Field(ge=1, le=1000, description="at most so many pieces")] = 100


class ExecWaitInput(Input):
    sandbox_id: SandboxId = None
    exec_id: Annotated[str, Field(description="from sandbox_exec with stream")]
    timeout_seconds: Annotated[Seconds | None, Field(description="give up waiting after so long; it goes on")] = None


class FsWriteInput(Input):
    other_names: ClassVar[dict[str, str]] = {"content": "contents"}

    sandbox_id: SandboxId = None
    path: Annotated[str, Field(description="relative to the workspace; folders are made")]
    contents: Annotated[str | None, Field(description="text")] = None
    contents_b64: Annotated[str | None, Field(description="or bytes, as base64")] = None
    encoding: Annotated[Literal["text", "base64"], Field(description="what contents is")] = "text"
    mode: Annotated[str | None, Field(pattern="^0?[0-7]{3}$", description='permissions, such as "0755"')] = None
    overwrite: Annotated[bool, Field(description="false: fail if the file exists")] = True

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if (self.contents is None) == (self.contents_b64 is None):
            raise ValueError("give contents or contents_b64, and not both")
        return self


class FsReadInput(Input):
    sandbox_id: SandboxId = None
    path: Annotated[str, Field(description="relative to the workspace")]
    max_bytes: Annotated[int, Field(ge=1, le=4 << 20, description="at most so much of it")] = 256 << 10
    encoding: Annotated[Literal["text", "base64"], Field(description="base64: as bytes, also if it is text")] = "text"


class FsListInput(Input):
    sandbox_id: SandboxId = None
    path: Annotated[str, Field(description="folder, relative to the workspace")] = "."
    recursive: Annotated[bool, Field(description="folders in it too")] = False


class FsDeleteInput(Input):
    sandbox_id: SandboxId = None
    path: Annotated[str, Field(description="relative to the workspace")]
    recursive: Annotated[bool, Field(description="needed for a folder that is not empty")] = False


class StageFileInput(Input):
    other_names: ClassVar[dict[str, str]] = {"file_id": "file_key", "destination": "path"}

    sandbox_id: SandboxId = None
    file_key: Annotated[str, Field(description="of the file in the object store")]
    path: Annotated[str, Field(description="where it goes, relative to the workspace; folders are made")]
    bucket: Annotated[str | None, Field(description="another bucket than the usual one")] = None
    overwrite: Annotated[bool, Field(description="false: fail if the file exists")] = True


class PublishFileInput(Input):
    other_names: ClassVar[dict[str, str]] = {"file_id": "file_key", "source": "path"}

    sandbox_id: SandboxId = None
    path: Annotated[str, Field(description="of the file, relative to the workspace")]
    file_key: Annotated[str | None, Field(description="what it is called there; its path if left out")] = None
    bucket: Annotated[str | None, Field(description="another bucket than the usual one")] = None


class CloseInput(Input):
    sandbox_id: SandboxId = None
    delete_workspace: Annotated[bool, Field(description="the workspace always goes with its session")] = True

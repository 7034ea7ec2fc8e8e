"""What a call gives back. Small frozen dataclasses; `as_tool()` is the form that agents and `--json` see."""

from __future__ import annotations

import base64
import codecs
from dataclasses import dataclass, field
from typing import Any, Literal

from .guest.protocol import EndCause as EndCause
from .guest.protocol import FileKind as FileKind

Encoding = Literal["utf-8", "utf-8-lossy"]


@dataclass(frozen=True, slots=True)
class Output:
    """What is kept of one stream: its first and its last bytes, and how much there was."""

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0

    @property
    def kept(self) -> bytes:
        return self.head + self.tail

    @property
    def truncated(self) -> bool:
        return len(self.head) + len(self.tail) < self.total_bytes

    def _decode(self, errors: str) -> tuple[str, str]:
        """The text before the cut and after it."""
        if not self.truncated:
            return self.kept.decode("utf-8", errors), ""
        # A character that the cut went through is dropped, and does not spoil its neighbours.
        head = codecs.getincrementaldecoder("utf-8")(errors).decode(self.head)
        start = next((at for at, byte in enumerate(self.tail[:4]) if byte & 0xC0 != 0x80), 0)
        return head, self.tail[start:].decode("utf-8", errors)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def parts(self) -> tuple[str, str]:
        """The text before the place where something is missing, and after it; all and nothing, if nothing is."""
        return self._decode("replace")

    @property
    def encoding(self) -> Encoding:
        """`utf-8`: the text is the bytes; `utf-8-lossy`: some were no text, ask for the bytes."""
        try:
            self._decode("strict")
        except UnicodeDecodeError:
            return "utf-8-lossy"
        return "utf-8"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a program ended, and what it wrote."""

    exit_code: int | None
    """None when it ended by a signal, or when nobody can know"""
    end_cause: EndCause
    signal: int | None
    """the signal that ended it"""
    duration_ms: float
    cpu_ms: float
    peak_memory_bytes: int
    """of its largest process"""
    stdout_output: Output = field(repr=False)
    stderr_output: Output = field(repr=False)
    left_processes: tuple[str, ...] = ()
    """names of processes that it left behind; they were killed"""
    left_count: int = 0
    exec_id: str = ""
    """its id in its session"""

    @property
    def ok(self) -> bool:
        """It ended by itself with exit code 0."""
        return self.exit_code == 0 and self.end_cause is EndCause.COMPLETED

    @property
    def stdout(self) -> str:
        return self.stdout_output.text

    @property
    def stderr(self) -> str:
        return self.stderr_output.text

    @property
    def stdout_bytes(self) -> bytes:
        return self.stdout_output.kept

    @property
    def stderr_bytes(self) -> bytes:
        return self.stderr_output.kept

    @property
    def encoding(self) -> Encoding:
        both = (self.stdout_output.encoding, self.stderr_output.encoding)
        return "utf-8" if both == ("utf-8", "utf-8") else "utf-8-lossy"

    @property
    def truncated(self) -> bool:
        return self.stdout_output.truncated or self.stderr_output.truncated

    @property
    def stdout_total_bytes(self) -> int:
        return self.stdout_output.total_bytes

    @property
    def stderr_total_bytes(self) -> int:
        return self.stderr_output.total_bytes

    def as_tool(self) -> dict[str, Any]:
        """The result as a tool gives it to a model."""
        timeout = {"error_code": "COMMAND_TIMEOUT"} if self.end_cause is EndCause.TIMEOUT else {}
        return {
            "ok": self.ok,
            **timeout,
            "exit_code": self.exit_code,
            "end_cause": self.end_cause.value,
            "signal": self.signal,
            "duration_ms": round(self.duration_ms),
            "stdout": self.stdout,
            "stderr": self.stderr,
            "encoding": self.encoding,
            "truncated": self.truncated,
            "stdout_total_bytes": self.stdout_total_bytes,
            "stderr_total_bytes": self.stderr_total_bytes,
            "cpu_ms": round(self.cpu_ms),
            "peak_memory_bytes": self.peak_memory_bytes,
            "left_processes": list(self.left_processes),
        }


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run left, asked for with `artifacts=`."""

    path: str
    size_bytes: int
    content: bytes = field(repr=False)

    def as_tool(self) -> dict[str, Any]:
        encoded = base64.b64encode(self.content).decode()
        return {"path": self.path, "size_bytes": self.size_bytes, "content_base64": encoded}


@dataclass(frozen=True, slots=True)
class SkippedArtifact:
    """A file that matched `artifacts=` and was not returned: too large, one too many, or not readable."""

    path: str
    size_bytes: int

    def as_tool(self) -> dict[str, Any]:
        return {"path": self.path, "size_bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class PublishedArtifact:
    """A file that matched `artifacts=`, was too large to be returned, and is in the object store."""

    path: str
    file_key: str
    bucket: str
    size_bytes: int
    digest: str

    def as_tool(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "file_key": self.file_key,
            "bucket": self.bucket,
            "size_bytes": self.size_bytes,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class RunResult(ExecResult):
    """How a one-shot run ended, and what it left."""

    runtime: str = ""
    engine: str = ""
    artifacts: tuple[Artifact, ...] = ()
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    """files that matched and were over a cap, the first of them"""
    artifacts_skipped_count: int = 0
    """how many they were"""
    artifacts_published: tuple[PublishedArtifact, ...] = ()
    """files that matched, were over the cap on bytes, and are in the object store; only where one is configured"""
    artifacts_unpublished: str = ""
    """why some of them are not there but in `artifacts_skipped`"""
    artifacts_unlisted: bool = False
    """True: there were so many files, or such deep folders, that not all were looked at"""
    cached: bool = False
    """True: the engine had run the same before, and this is what came out then; only with `cache=True`"""
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    """the limits that held"""

    def as_tool(self) -> dict[str, Any]:
        return {
            **ExecResult.as_tool(self),
            "runtime": self.runtime,
            "engine": self.engine,
            "artifacts": [artifact.as_tool() for artifact in self.artifacts],
            "artifacts_skipped": [skipped.as_tool() for skipped in self.artifacts_skipped],
            "artifacts_skipped_count": self.artifacts_skipped_count,
            "artifacts_published": [published.as_tool() for published in self.artifacts_published],
            **({"artifacts_unpublished": self.artifacts_unpublished} if self.artifacts_unpublished else {}),
            "artifacts_unlisted": self.artifacts_unlisted,
            "cached": self.cached,
            "limits": self.limits,
        }


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file or folder of a workspace."""

    path: str
    """relative to the workspace"""
    kind: FileKind
    size_bytes: int
    mode: int
    """permission bits"""
    modified_ms: int

    def as_tool(self) -> dict[str, Any]:
        return {
            "path": self.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            "type": self.kind.value,
            "size_bytes": self.size_bytes,
            "mode": f"{self.mode:04o}",
            "modified_ms": self.modified_ms,
        }


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries of a folder; `truncated` when there are more than were asked for."""

    entries: tuple[FileEntry, ...]
    truncated: bool

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of the output of a running exec."""

    stream: Literal["stdout", "stderr"]
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OutputRead:
    """What `read(since)` found."""

    chunks: tuple[OutputChunk, ...]
    next: int
    """`since` of the next read"""
    expired_bytes: int
    """bytes before `next` that were overwritten, because nobody read them in time"""
    ended: bool
    """the program is over and there is nothing after `next`"""

    @property
    def stdout(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == "stdout")

    @property
    def stderr(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == "stderr")

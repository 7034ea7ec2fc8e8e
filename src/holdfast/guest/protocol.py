"""What host and guest say to each other: the one definition. `make generate` writes the Go types from it.

One byte stream carries many calls. Everything on it is a frame:

    length u32 | stream u32 | kind u8 | payload            (big endian; length counts the payload)

    host                                               guest
     |-- stream 0  HostHello ------------------------->  |      once, first, both ways
     |<- stream 0  GuestHello -------------------------  |
     |                                                   |
     |-- stream n  one request (MESSAGE) ------------->  |      opens stream n; n is never used twice
     |-- stream n  DATA* END  (stdin, file to write) ->  |
     |<- stream n  DATA*, DATA_ERR*, EVENT* -----------  |      output, file contents, pages of a listing
     |<- stream n  reply or Failure (MESSAGE) ---------  |      closes stream n
     |-- stream n  RESET ----------------------------->  |      the caller gave up: the work is cancelled, and
     |                                                   |      the reply comes all the same, when it is over
     |<- stream 0  RESET -----------------------------  |      the guest hangs up, where the stream itself cannot tell
     |-- stream n  WINDOW u32 ------------------------>  |      the sender of DATA may send so many bytes more

A replay is the same conversation with a guest that is started later: all of the host's half lies in a file, and the
guest's half comes back whole. Nobody can give credit then, so the host's hello gives enough, and the guest reads on
only as fast as the data is used.

Each direction of a stream starts with `window` bytes of credit, so a reader that stalls stalls only its own
stream. DATA takes its length of it. Towards the host, DATA, DATA_ERR and EVENT take at least FRAME_COST, so that
credit also bounds how many frames the host may have to hold; with any credit left, one frame may be sent.
Text in messages (paths, arguments, environment) is bytes: see `to_wire` and `from_wire`.
The guest is hostile until proven otherwise: the host checks every frame against these types and limits.

Frames have no defaults except None: a default in Python would be a different zero value in Go.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum, StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL: Final = 1
HEADER: Final = struct.Struct(">IIB")
MAX_MESSAGE_BYTES: Final = 4 << 20
"""Longest JSON payload; arguments and environment of one exec have to fit."""
MAX_DATA_BYTES: Final = 256 << 10
"""Longest payload of one DATA frame."""
WINDOW_BYTES: Final = 1 << 20
"""Credit that each direction of a stream starts with."""
FRAME_COST: Final = 256
"""What the shortest frame towards the host takes of its stream's credit."""
PAGE_ENTRIES: Final = 500
"""Entries of one FilePage."""
MAX_SKIPPED: Final = 1000
"""Entries of `RunEnded.skipped`."""
INLINE_BYTES: Final = 192 << 10
"""Longest answer of a replay that goes to stdout, as base64; a longer one is left in a file."""
MAX_STREAMS: Final = 4096
"""Calls in flight on one connection."""


class Kind(IntEnum):
    """What the payload of a frame is."""

    MESSAGE = 0
    """JSON: a request, which opens its stream, or a reply, which closes it"""
    DATA = 1
    """raw bytes: stdin or file contents to the guest; stdout or file contents to the host"""
    DATA_ERR = 2
    """raw bytes: stderr"""
    END = 3
    """the sender has no more DATA on this stream"""
    WINDOW = 4
    """u32: bytes of DATA that the receiver of this frame may send in addition"""
    RESET = 5
    """the caller gave up on this stream"""
    EVENT = 6
    """JSON: something on the way to the reply"""


class Feature(StrEnum):
    """What a guest can do beyond the protocol's core; asked for by name, never by version."""

    USER_SWITCH = "user_switch"
    """it may start programs as another user"""
    OOM_REPORT = "oom_report"
    """it can tell an out-of-memory kill from any other"""
    PIDS_REPORT = "pids_report"
    """it can tell that a fork failed at the process limit"""


class EndCause(StrEnum):
    """Why an exec or a run ended."""

    COMPLETED = "completed"
    """the program ended by itself: by exit, or by a signal that we did not send"""
    TIMEOUT = "timeout"
    """its time was over, and all its processes were killed"""
    CANCELLED = "cancelled"
    """the caller gave up, and all its processes were killed"""
    KILLED = "killed"
    """somebody asked for the kill"""
    OOM = "oom"
    """the kernel killed a process of it at the memory limit"""
    OUTPUT_LIMIT = "output_limit"
    """it wrote more than the hard limit on output, and was killed"""
    DISK_FULL = "disk_full"
    """it failed while the workspace had no space or no inode left"""
    PIDS_LIMIT = "pids_limit"
    """it failed, or could not start, because a fork was refused at the process limit"""
    LOST = "lost"
    """nobody knows: the connection, the guest or the supervisor went away"""


class ErrorCode(StrEnum):
    """Every way in which the guest can refuse. `errors.py` has one exception for each."""

    INVALID_REQUEST = "invalid_request"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    IS_A_DIRECTORY = "is_a_directory"
    NOT_A_DIRECTORY = "not_a_directory"
    NOT_REGULAR_FILE = "not_regular_file"
    DIRECTORY_NOT_EMPTY = "directory_not_empty"
    PATH_NOT_ALLOWED = "path_not_allowed"
    PERMISSION_DENIED = "permission_denied"
    NAME_TOO_LONG = "name_too_long"
    SYMLINK_LOOP = "symlink_loop"
    FILE_TOO_LARGE = "file_too_large"
    TOO_MANY_FILES = "too_many_files"
    WORKSPACE_FULL = "workspace_full"
    COMMAND_NOT_FOUND = "command_not_found"
    NOT_EXECUTABLE = "not_executable"
    CWD_NOT_FOUND = "cwd_not_found"
    CWD_NOT_A_DIRECTORY = "cwd_not_a_directory"
    ARGUMENT_TOO_LONG = "argument_too_long"
    USER_UNKNOWN = "user_unknown"
    USER_NOT_AVAILABLE = "user_not_available"
    EXEC_NOT_FOUND = "exec_not_found"
    STDIN_CLOSED = "stdin_closed"
    TOO_MANY_EXECS = "too_many_execs"
    LIMITS_NOT_AVAILABLE = "limits_not_available"
    SHUTTING_DOWN = "shutting_down"
    INTERNAL = "internal"


class Frame(BaseModel):
    """Base of every message."""

    # Built at first use: a client needs a few of these, and building all of them takes longer than a run.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# --- how a guest is started -------------------------------------------------------------------------------------


class GuestLimits(Frame):
    """Limits that the guest itself puts on what it starts; None leaves the kernel's or the engine's."""

    open_files: int | None = None
    """RLIMIT_NOFILE"""
    file_bytes: int | None = None
    """RLIMIT_FSIZE, and the largest file that may be written through the guest"""
    processes: int | None = None
    """RLIMIT_NPROC: only where no cgroup holds the number of processes"""
    data_bytes: int | None = None
    """RLIMIT_DATA, for each process: only where no cgroup holds the memory"""
    cpu_seconds: int | None = None
    """RLIMIT_CPU, for each process: only where no cgroup holds the CPU"""
    files: int | None = None
    """files and folders in the workspace, counted by the file system; refuses writes through the guest"""


class GuestConfig(Frame):
    """How a guest is started: the first frame on its stdin (stream 0, MESSAGE), or the argument itself."""

    workspace: str
    """absolute path; file requests are confined to it"""
    socket: str | None = None
    """serve: path of the unix socket to make; tenants of the sandbox are turned away from it"""
    listen_fd: int | None = None
    """serve: an inherited listening socket instead, which the sandbox cannot see at all"""
    idle_timeout_ms: int | None = None
    """serve: exit after so long without a request and without a running exec"""
    max_lifetime_ms: int | None = None
    """exit after so long, whatever is going on"""
    user: int | None = None
    """uid and gid that the guest takes for good before it does anything"""
    own: list[str] | None = None
    """folders that are made, and given to `user`, before that"""
    request: str | None = None
    """replay: path of the file that holds all that the host says"""
    answer: str | None = None
    """replay: path of the file for an answer that is too long for stdout"""
    proof: str | None = None
    """replay: path of a file whose text RunEnded repeats, so that the host knows an answer from an old one"""
    env: dict[str, str]
    """environment that every exec starts from"""
    limits: GuestLimits
    network: bool
    """False: the seccomp filter leaves AF_UNIX sockets only"""
    memory_events: str | None = None
    """path of memory.events (cgroup v2) or memory.oom_control (v1) of this sandbox"""
    pids_events: str | None = None
    """path of pids.events of this sandbox"""


# --- hello ------------------------------------------------------------------------------------------------------


class OnEof(StrEnum):
    """What the end of the host's half of the connection means."""

    CANCEL = "cancel"
    """the host is gone: cancel what it waits for"""
    FINISH = "finish"
    """the host has said all: finish, answer, then go"""


class HostHello(Frame):
    protocol: int
    window: int
    """credit for each stream towards the host"""
    on_eof: OnEof


class GuestHello(Frame):
    protocol: int
    window: int
    """credit for each stream towards the guest"""
    features: list[Feature]
    workspace: str
    arch: str


# --- exec -------------------------------------------------------------------------------------------------------


class StdinMode(StrEnum):
    NONE = "none"
    """/dev/null"""
    PIPE = "pipe"
    """DATA on the exec's own stream, or ExecStdin later"""


class Background(StrEnum):
    """What happens to processes that are left when the main process ends."""

    KILL = "kill"
    KEEP = "keep"
    """the exec goes on, without its main process, until they end too"""


class Delivery(StrEnum):
    """How the caller of an exec wants its output."""

    RESULT = "result"
    """all that was kept, when it ends; the exec is cancelled if the caller goes away"""
    LIVE = "live"
    """as it comes, and the program waits for a slow caller; it is cancelled if the caller goes away"""
    DETACHED = "detached"
    """not at all: ExecStarted is the reply, and the exec lives on without the caller"""


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class ExecRequest(Frame):
    op: Literal["exec"] = "exec"
    argv: list[str] | None = None
    """program and arguments; or `shell`"""
    shell: str | None = None
    """a line for `sh -c`"""
    cwd: str | None = None
    """absolute, or relative to the workspace; None is the workspace"""
    env: dict[str, str]
    """added to the environment of the guest's config"""
    stdin: StdinMode
    user: str | None = None
    """name, uid or uid:gid"""
    timeout_ms: int | None = None
    stdout_cap_bytes: int
    """bytes of stdout that are kept: the first half and the last half of them"""
    stderr_cap_bytes: int
    output_limit_bytes: int | None = None
    """kill the exec when it has written so much in all"""
    background: Background
    delivery: Delivery


class ExecRead(Frame):
    op: Literal["exec_read"] = "exec_read"
    exec_id: str
    since: int
    """position in the output, of stdout and stderr together; 0 is the start"""
    max_bytes: int
    wait_ms: int
    """wait so long for something new"""


class ExecWait(Frame):
    op: Literal["exec_wait"] = "exec_wait"
    exec_id: str
    timeout_ms: int | None = None


class ExecKill(Frame):
    op: Literal["exec_kill"] = "exec_kill"
    exec_id: str
    signal: int
    """SIGKILL ends every process of the exec; any other signal is delivered to each of them once"""


class ExecStdin(Frame):
    op: Literal["exec_stdin"] = "exec_stdin"
    exec_id: str
    close: bool
    """close stdin after the DATA of this stream"""


class ExecList(Frame):
    op: Literal["exec_list"] = "exec_list"


class ExecStarted(Frame):
    """First event of a live exec, reply of a detached one."""

    type: Literal["exec_started"] = "exec_started"
    exec_id: str


class OutputExpired(Frame):
    """Event of a live exec: so much output passed a slow caller by when the program ended."""

    type: Literal["output_expired"] = "output_expired"
    expired_bytes: int


class StreamCount(Frame):
    """How much a stream carried, and how much of it is kept."""

    total_bytes: int
    head_bytes: int
    """kept from the start"""
    tail_bytes: int
    """kept from the end; there is a gap between head and tail when they are not the total"""


class LeftProcess(Frame):
    pid: int
    name: str


class ExecEnded(Frame):
    type: Literal["exec_ended"] = "exec_ended"
    exec_id: str
    end_cause: EndCause
    exit_code: int | None = None
    """None: it ended by a signal, or nobody knows"""
    signal: int | None = None
    duration_ms: float
    cpu_ms: float
    peak_memory_bytes: int
    """of its largest process"""
    stdout: StreamCount
    stderr: StreamCount
    left_count: int
    """processes that were left behind and killed"""
    left: list[LeftProcess]
    """the first of them"""


class Segment(Frame):
    """A piece of the DATA before an ExecOutput."""

    stream: OutputStream
    position: int
    size_bytes: int


class ExecOutput(Frame):
    """Reply of ExecRead, after the DATA of its segments."""

    type: Literal["exec_output"] = "exec_output"
    segments: list[Segment]
    next_position: int
    """`since` of the next read"""
    expired_bytes: int
    """bytes between `since` and the last segment that are kept no longer"""
    ended: ExecEnded | None = None


class ExecWaited(Frame):
    type: Literal["exec_waited"] = "exec_waited"
    ended: ExecEnded | None = None
    """None: it is still running"""


class ExecInfo(Frame):
    exec_id: str
    command: str
    """the first 200 characters"""
    running: bool
    started_ms_ago: int
    ended: ExecEnded | None = None


class ExecListing(Frame):
    type: Literal["exec_listing"] = "exec_listing"
    execs: list[ExecInfo]


# --- files ------------------------------------------------------------------------------------------------------


class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class FileEntry(Frame):
    path: str
    """relative to the workspace"""
    kind: FileKind
    size_bytes: int
    mode: int
    """permission bits"""
    modified_ms: int
    """since 1970, by the sandbox's clock"""


class FileWrite(Frame):
    """Followed by DATA and END."""

    op: Literal["file_write"] = "file_write"
    path: str
    mode: int | None = None
    """permission bits; None keeps those of the file that is replaced, else 0644"""
    overwrite: bool


class FileRead(Frame):
    op: Literal["file_read"] = "file_read"
    path: str
    offset: int
    max_bytes: int | None = None


class FileList(Frame):
    op: Literal["file_list"] = "file_list"
    path: str
    recursive: bool
    max_entries: int


class FileStat(Frame):
    op: Literal["file_stat"] = "file_stat"
    path: str


class FileDelete(Frame):
    op: Literal["file_delete"] = "file_delete"
    path: str
    recursive: bool


class FileMkdir(Frame):
    """Makes parents too; a directory that is there already is fine."""

    op: Literal["file_mkdir"] = "file_mkdir"
    path: str


class FileMove(Frame):
    op: Literal["file_move"] = "file_move"
    source: str
    destination: str
    overwrite: bool


class FileDone(Frame):
    """Reply of FileWrite, FileStat, FileMkdir and FileMove: the file as it is now."""

    type: Literal["file_done"] = "file_done"
    entry: FileEntry


class FileSent(Frame):
    """Reply of FileRead, after its DATA."""

    type: Literal["file_sent"] = "file_sent"
    entry: FileEntry
    sent_bytes: int
    truncated: bool
    """there is more in the file, after what was sent"""


class FilePage(Frame):
    """Event of FileList."""

    type: Literal["file_page"] = "file_page"
    entries: list[FileEntry]


class FileListed(Frame):
    """Reply of FileList, after its pages."""

    type: Literal["file_listed"] = "file_listed"
    count: int
    truncated: bool


# --- a run ------------------------------------------------------------------------------------------------------


class RunFile(Frame):
    path: str
    size_bytes: int


class RunRequest(Frame):
    """Files in, a program, artifacts out: one request, so that it can also be said to a guest that is not there yet.

    Followed by DATA: the contents of the files, one after the other, then stdin. The answer has the program's output as
    an exec's has it, then each artifact as an event and its DATA.
    """

    op: Literal["run"] = "run"
    files: list[RunFile]
    program: ExecRequest
    """its delivery is RESULT or LIVE"""
    artifacts: list[str]
    """patterns: `*` and `?` stay within one folder, `**` goes through any number, a folder stands for all in it"""
    max_artifact_bytes: int
    """of all of them together"""
    max_artifacts: int


class ArtifactFound(Frame):
    """Event of a run: a file that matches; its DATA follows."""

    type: Literal["artifact_found"] = "artifact_found"
    path: str
    size_bytes: int


class ArtifactSkipped(Frame):
    """A file that matches and was over a cap."""

    path: str
    size_bytes: int


class RunEnded(Frame):
    type: Literal["run_ended"] = "run_ended"
    ended: ExecEnded
    skipped: list[ArtifactSkipped]
    """the first of them"""
    skipped_count: int
    unlisted: bool
    """there were more files than were looked at, or a folder that could not be read"""
    proof: str | None = None


# --- the guest itself -------------------------------------------------------------------------------------------


class Status(Frame):
    op: Literal["status"] = "status"


class Shutdown(Frame):
    """Kill everything and exit; on Docker the container goes away with it."""

    op: Literal["shutdown"] = "shutdown"


class Retire(Frame):
    """Kill every program, and exit after so long, used or not: the files are kept for somebody who wants to look."""

    op: Literal["retire"] = "retire"
    keep_ms: int


class StatusReport(Frame):
    type: Literal["status_report"] = "status_report"
    uptime_ms: int
    idle_ms: int
    lifetime_left_ms: int | None = None
    running_execs: int
    connections: int
    workspace_total_bytes: int
    workspace_free_bytes: int
    workspace_free_files: int


class Done(Frame):
    """Reply of what has nothing else to say."""

    type: Literal["done"] = "done"


class Failure(Frame):
    """Reply of what could not be done."""

    type: Literal["failure"] = "failure"
    code: ErrorCode
    message: str
    """one sentence, for a person"""


Request = Annotated[
    ExecRequest
    | ExecRead
    | ExecWait
    | ExecKill
    | ExecStdin
    | ExecList
    | FileWrite
    | FileRead
    | FileList
    | FileStat
    | FileDelete
    | FileMkdir
    | FileMove
    | RunRequest
    | Status
    | Shutdown
    | Retire,
    Field(discriminator="op"),
]

Event = ExecStarted | OutputExpired | FilePage | ArtifactFound
Reply = (
    ExecStarted
    | ExecEnded
    | ExecOutput
    | ExecWaited
    | ExecListing
    | FileDone
    | FileSent
    | FileListed
    | RunEnded
    | StatusReport
    | Done
    | Failure
)
Answer = Annotated[Event | Reply, Field(discriminator="type")]

REQUESTS: TypeAdapter[Request] = TypeAdapter(Request, config=ConfigDict(defer_build=True))
ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer, config=ConfigDict(defer_build=True))

# --- text -------------------------------------------------------------------------------------------------------

_RAW_BYTE = re.compile("\0([89a-f][0-9a-f])")
_SURROGATE = re.compile("[\udc80-\udcff]")


def to_wire(text: str) -> str:
    """A path, an argument or a value as JSON can carry it.

    Linux's names are bytes, JSON's are not. A byte that is not UTF-8 (Python holds it as a lone surrogate)
    travels as NUL and two hex digits, which no name can contain.

    Raises:
        ValueError: `text` contains NUL.
    """
    if "\0" in text:
        raise ValueError("contains a NUL byte")
    return _SURROGATE.sub(lambda found: f"\0{ord(found[0]) - 0xDC00:02x}", text)


def from_wire(text: str) -> str:
    """The reverse of `to_wire`."""
    return _RAW_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text)

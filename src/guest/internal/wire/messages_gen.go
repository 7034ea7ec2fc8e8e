// Code generated from protocol.py by generate.py. DO NOT EDIT.

package wire

const (
	Protocol        = 1
	MaxMessageBytes = 4194304
	MaxDataBytes    = 262144
	WindowBytes     = 1048576
	FrameCost       = 256
	PageEntries     = 500
	MaxStreams      = 4096
	MaxSkipped      = 1000
	InlineBytes     = 196608
)

type Kind uint8

const (
	KindMessage Kind = 0
	KindData    Kind = 1
	KindDataErr Kind = 2
	KindEnd     Kind = 3
	KindWindow  Kind = 4
	KindReset   Kind = 5
	KindEvent   Kind = 6
)

type Feature string

const (
	FeatureUserSwitch Feature = "user_switch"
	FeatureOomReport  Feature = "oom_report"
	FeaturePidsReport Feature = "pids_report"
)

type EndCause string

const (
	EndCauseCompleted   EndCause = "completed"
	EndCauseTimeout     EndCause = "timeout"
	EndCauseCancelled   EndCause = "cancelled"
	EndCauseKilled      EndCause = "killed"
	EndCauseOom         EndCause = "oom"
	EndCauseOutputLimit EndCause = "output_limit"
	EndCauseDiskFull    EndCause = "disk_full"
	EndCausePidsLimit   EndCause = "pids_limit"
	EndCauseLost        EndCause = "lost"
)

type ErrorCode string

const (
	ErrorCodeInvalidRequest     ErrorCode = "invalid_request"
	ErrorCodeNotFound           ErrorCode = "not_found"
	ErrorCodeAlreadyExists      ErrorCode = "already_exists"
	ErrorCodeIsADirectory       ErrorCode = "is_a_directory"
	ErrorCodeNotADirectory      ErrorCode = "not_a_directory"
	ErrorCodeNotRegularFile     ErrorCode = "not_regular_file"
	ErrorCodeDirectoryNotEmpty  ErrorCode = "directory_not_empty"
	ErrorCodePathNotAllowed     ErrorCode = "path_not_allowed"
	ErrorCodePermissionDenied   ErrorCode = "permission_denied"
	ErrorCodeNameTooLong        ErrorCode = "name_too_long"
	ErrorCodeSymlinkLoop        ErrorCode = "symlink_loop"
	ErrorCodeFileTooLarge       ErrorCode = "file_too_large"
	ErrorCodeTooManyFiles       ErrorCode = "too_many_files"
	ErrorCodeWorkspaceFull      ErrorCode = "workspace_full"
	ErrorCodeCommandNotFound    ErrorCode = "command_not_found"
	ErrorCodeNotExecutable      ErrorCode = "not_executable"
	ErrorCodeCwdNotFound        ErrorCode = "cwd_not_found"
	ErrorCodeCwdNotADirectory   ErrorCode = "cwd_not_a_directory"
	ErrorCodeArgumentTooLong    ErrorCode = "argument_too_long"
	ErrorCodeUserUnknown        ErrorCode = "user_unknown"
	ErrorCodeUserNotAvailable   ErrorCode = "user_not_available"
	ErrorCodeExecNotFound       ErrorCode = "exec_not_found"
	ErrorCodeStdinClosed        ErrorCode = "stdin_closed"
	ErrorCodeTooManyExecs       ErrorCode = "too_many_execs"
	ErrorCodeLimitsNotAvailable ErrorCode = "limits_not_available"
	ErrorCodeShuttingDown       ErrorCode = "shutting_down"
	ErrorCodeInternal           ErrorCode = "internal"
)

// GuestLimits: Limits that the guest itself puts on what it starts; None leaves the kernel's or the engine's.
type GuestLimits struct {
	// RLIMIT_NOFILE
	OpenFiles *int64 `json:"open_files,omitempty"`
	// RLIMIT_FSIZE, and the largest file that may be written through the guest
	FileBytes *int64 `json:"file_bytes,omitempty"`
	// RLIMIT_NPROC: only where no cgroup holds the number of processes
	Processes *int64 `json:"processes,omitempty"`
	// RLIMIT_DATA, for each process: only where no cgroup holds the memory
	DataBytes *int64 `json:"data_bytes,omitempty"`
	// RLIMIT_CPU, for each process: only where no cgroup holds the CPU
	CPUSeconds *int64 `json:"cpu_seconds,omitempty"`
	// files and folders in the workspace, counted by the file system; refuses writes through the guest
	Files *int64 `json:"files,omitempty"`
}

// GuestConfig: How a guest is started: the first frame on its stdin (stream 0, MESSAGE), or the argument itself.
type GuestConfig struct {
	// absolute path; file requests are confined to it
	Workspace string `json:"workspace"`
	// serve: path of the unix socket to make; tenants of the sandbox are turned away from it
	Socket *string `json:"socket,omitempty"`
	// serve: an inherited listening socket instead, which the sandbox cannot see at all
	ListenFD *int64 `json:"listen_fd,omitempty"`
	// serve: exit after so long without a request and without a running exec
	IdleTimeoutMS *int64 `json:"idle_timeout_ms,omitempty"`
	// exit after so long, whatever is going on
	MaxLifetimeMS *int64 `json:"max_lifetime_ms,omitempty"`
	// uid and gid that the guest takes for good before it does anything
	User *int64 `json:"user,omitempty"`
	// folders that are made, and given to `user`, before that
	Own []string `json:"own,omitempty"`
	// replay: path of the file that holds all that the host says
	Request *string `json:"request,omitempty"`
	// replay: path of the file for an answer that is too long for stdout
	Answer *string `json:"answer,omitempty"`
	// replay: path of a file whose text RunEnded repeats, so that the host knows an answer from an old one
	Proof *string `json:"proof,omitempty"`
	// environment that every exec starts from
	Env    map[string]string `json:"env"`
	Limits GuestLimits       `json:"limits"`
	// False: the seccomp filter leaves AF_UNIX sockets only
	Network bool `json:"network"`
	// path of memory.events (cgroup v2) or memory.oom_control (v1) of this sandbox
	MemoryEvents *string `json:"memory_events,omitempty"`
	// path of pids.events of this sandbox
	PidsEvents *string `json:"pids_events,omitempty"`
}

type OnEof string

const (
	OnEofCancel OnEof = "cancel"
	OnEofFinish OnEof = "finish"
)

type HostHello struct {
	Protocol int64 `json:"protocol"`
	// credit for each stream towards the host
	Window int64 `json:"window"`
	OnEof  OnEof `json:"on_eof"`
}

type GuestHello struct {
	Protocol int64 `json:"protocol"`
	// credit for each stream towards the guest
	Window    int64     `json:"window"`
	Features  []Feature `json:"features"`
	Workspace string    `json:"workspace"`
	Arch      string    `json:"arch"`
}

type StdinMode string

const (
	StdinModeNone StdinMode = "none"
	StdinModePipe StdinMode = "pipe"
)

type Background string

const (
	BackgroundKill Background = "kill"
	BackgroundKeep Background = "keep"
)

type Delivery string

const (
	DeliveryResult   Delivery = "result"
	DeliveryLive     Delivery = "live"
	DeliveryDetached Delivery = "detached"
)

type OutputStream string

const (
	OutputStreamStdout OutputStream = "stdout"
	OutputStreamStderr OutputStream = "stderr"
)

type ExecRequest struct {
	Op string `json:"op"`
	// program and arguments; or `shell`
	Argv []string `json:"argv,omitempty"`
	// a line for `sh -c`
	Shell *string `json:"shell,omitempty"`
	// absolute, or relative to the workspace; None is the workspace
	Cwd *string `json:"cwd,omitempty"`
	// added to the environment of the guest's config
	Env   map[string]string `json:"env"`
	Stdin StdinMode         `json:"stdin"`
	// name, uid or uid:gid
	User      *string `json:"user,omitempty"`
	TimeoutMS *int64  `json:"timeout_ms,omitempty"`
	// bytes of stdout that are kept: the first half and the last half of them
	StdoutCapBytes int64 `json:"stdout_cap_bytes"`
	StderrCapBytes int64 `json:"stderr_cap_bytes"`
	// kill the exec when it has written so much in all
	OutputLimitBytes *int64     `json:"output_limit_bytes,omitempty"`
	Background       Background `json:"background"`
	Delivery         Delivery   `json:"delivery"`
}

const OpExecRequest = "exec"

type ExecRead struct {
	Op     string `json:"op"`
	ExecID string `json:"exec_id"`
	// position in the output, of stdout and stderr together; 0 is the start
	Since    int64 `json:"since"`
	MaxBytes int64 `json:"max_bytes"`
	// wait so long for something new
	WaitMS int64 `json:"wait_ms"`
}

const OpExecRead = "exec_read"

type ExecWait struct {
	Op        string `json:"op"`
	ExecID    string `json:"exec_id"`
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`
}

const OpExecWait = "exec_wait"

type ExecKill struct {
	Op     string `json:"op"`
	ExecID string `json:"exec_id"`
	// SIGKILL ends every process of the exec; any other signal is delivered to each of them once
	Signal int64 `json:"signal"`
}

const OpExecKill = "exec_kill"

type ExecStdin struct {
	Op     string `json:"op"`
	ExecID string `json:"exec_id"`
	// close stdin after the DATA of this stream
	Close bool `json:"close"`
}

const OpExecStdin = "exec_stdin"

type ExecList struct {
	Op string `json:"op"`
}

const OpExecList = "exec_list"

// ExecStarted: First event of a live exec, reply of a detached one.
type ExecStarted struct {
	Type   string `json:"type"`
	ExecID string `json:"exec_id"`
}

const TypeExecStarted = "exec_started"

// OutputExpired: Event of a live exec: so much output passed a slow caller by when the program ended.
type OutputExpired struct {
	Type         string `json:"type"`
	ExpiredBytes int64  `json:"expired_bytes"`
}

const TypeOutputExpired = "output_expired"

// StreamCount: How much a stream carried, and how much of it is kept.
type StreamCount struct {
	TotalBytes int64 `json:"total_bytes"`
	// kept from the start
	HeadBytes int64 `json:"head_bytes"`
	// kept from the end; there is a gap between head and tail when they are not the total
	TailBytes int64 `json:"tail_bytes"`
}

type LeftProcess struct {
	Pid  int64  `json:"pid"`
	Name string `json:"name"`
}

type ExecEnded struct {
	Type     string   `json:"type"`
	ExecID   string   `json:"exec_id"`
	EndCause EndCause `json:"end_cause"`
	// None: it ended by a signal, or nobody knows
	ExitCode   *int64  `json:"exit_code,omitempty"`
	Signal     *int64  `json:"signal,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	CPUMS      float64 `json:"cpu_ms"`
	// of its largest process
	PeakMemoryBytes int64       `json:"peak_memory_bytes"`
	Stdout          StreamCount `json:"stdout"`
	Stderr          StreamCount `json:"stderr"`
	// processes that were left behind and killed
	LeftCount int64 `json:"left_count"`
	// the first of them
	Left []LeftProcess `json:"left"`
}

const TypeExecEnded = "exec_ended"

// Segment: A piece of the DATA before an ExecOutput.
type Segment struct {
	Stream    OutputStream `json:"stream"`
	Position  int64        `json:"position"`
	SizeBytes int64        `json:"size_bytes"`
}

// ExecOutput: Reply of ExecRead, after the DATA of its segments.
type ExecOutput struct {
	Type     string    `json:"type"`
	Segments []Segment `json:"segments"`
	// `since` of the next read
	NextPosition int64 `json:"next_position"`
	// bytes between `since` and the last segment that are kept no longer
	ExpiredBytes int64      `json:"expired_bytes"`
	Ended        *ExecEnded `json:"ended,omitempty"`
}

const TypeExecOutput = "exec_output"

type ExecWaited struct {
	Type string `json:"type"`
	// None: it is still running
	Ended *ExecEnded `json:"ended,omitempty"`
}

const TypeExecWaited = "exec_waited"

type ExecInfo struct {
	ExecID string `json:"exec_id"`
	// the first 200 characters
	Command      string     `json:"command"`
	Running      bool       `json:"running"`
	StartedMSAgo int64      `json:"started_ms_ago"`
	Ended        *ExecEnded `json:"ended,omitempty"`
}

type ExecListing struct {
	Type  string     `json:"type"`
	Execs []ExecInfo `json:"execs"`
}

const TypeExecListing = "exec_listing"

type FileKind string

const (
	FileKindFile      FileKind = "file"
	FileKindDirectory FileKind = "directory"
	FileKindSymlink   FileKind = "symlink"
	FileKindOther     FileKind = "other"
)

type FileEntry struct {
	// relative to the workspace
	Path      string   `json:"path"`
	Kind      FileKind `json:"kind"`
	SizeBytes int64    `json:"size_bytes"`
	// permission bits
	Mode int64 `json:"mode"`
	// since 1970, by the sandbox's clock
	ModifiedMS int64 `json:"modified_ms"`
}

// FileWrite: Followed by DATA and END.
type FileWrite struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// permission bits; None keeps those of the file that is replaced, else 0644
	Mode      *int64 `json:"mode,omitempty"`
	Overwrite bool   `json:"overwrite"`
}

const OpFileWrite = "file_write"

type FileRead struct {
	Op       string `json:"op"`
	Path     string `json:"path"`
	Offset   int64  `json:"offset"`
	MaxBytes *int64 `json:"max_bytes,omitempty"`
}

const OpFileRead = "file_read"

type FileList struct {
	Op         string `json:"op"`
	Path       string `json:"path"`
	Recursive  bool   `json:"recursive"`
	MaxEntries int64  `json:"max_entries"`
}

const OpFileList = "file_list"

type FileStat struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

const OpFileStat = "file_stat"

type FileDelete struct {
	Op        string `json:"op"`
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

const OpFileDelete = "file_delete"

// FileMkdir: Makes parents too; a directory that is there already is fine.
type FileMkdir struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

const OpFileMkdir = "file_mkdir"

type FileMove struct {
	Op          string `json:"op"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Overwrite   bool   `json:"overwrite"`
}

const OpFileMove = "file_move"

// FileDone: Reply of FileWrite, FileStat, FileMkdir and FileMove: the file as it is now.
type FileDone struct {
	Type  string    `json:"type"`
	Entry FileEntry `json:"entry"`
}

const TypeFileDone = "file_done"

// FileSent: Reply of FileRead, after its DATA.
type FileSent struct {
	Type      string    `json:"type"`
	Entry     FileEntry `json:"entry"`
	SentBytes int64     `json:"sent_bytes"`
	// there is more in the file, after what was sent
	Truncated bool `json:"truncated"`
}

const TypeFileSent = "file_sent"

// FilePage: Event of FileList.
type FilePage struct {
	Type    string      `json:"type"`
	Entries []FileEntry `json:"entries"`
}

const TypeFilePage = "file_page"

// FileListed: Reply of FileList, after its pages.
type FileListed struct {
	Type      string `json:"type"`
	Count     int64  `json:"count"`
	Truncated bool   `json:"truncated"`
}

const TypeFileListed = "file_listed"

type RunFile struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

// RunRequest: Files in, a program, artifacts out: one request, so that it can also be said to a guest that is not there yet.
//
// Followed by DATA: the contents of the files, one after the other, then stdin. The answer has the program's output as
// an exec's has it, then each artifact as an event and its DATA.
type RunRequest struct {
	Op    string    `json:"op"`
	Files []RunFile `json:"files"`
	// its delivery is RESULT or LIVE
	Program ExecRequest `json:"program"`
	// patterns: `*` and `?` stay within one folder, `**` goes through any number, a folder stands for all in it
	Artifacts []string `json:"artifacts"`
	// of all of them together
	MaxArtifactBytes int64 `json:"max_artifact_bytes"`
	MaxArtifacts     int64 `json:"max_artifacts"`
}

const OpRunRequest = "run"

// ArtifactFound: Event of a run: a file that matches; its DATA follows.
type ArtifactFound struct {
	Type      string `json:"type"`
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

const TypeArtifactFound = "artifact_found"

// ArtifactSkipped: A file that matches and was over a cap.
type ArtifactSkipped struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

type RunEnded struct {
	Type  string    `json:"type"`
	Ended ExecEnded `json:"ended"`
	// the first of them
	Skipped      []ArtifactSkipped `json:"skipped"`
	SkippedCount int64             `json:"skipped_count"`
	// there were more files than were looked at, or a folder that could not be read
	Unlisted bool    `json:"unlisted"`
	Proof    *string `json:"proof,omitempty"`
}

const TypeRunEnded = "run_ended"

type Status struct {
	Op string `json:"op"`
}

const OpStatus = "status"

// Shutdown: Kill everything and exit; on Docker the container goes away with it.
type Shutdown struct {
	Op string `json:"op"`
}

const OpShutdown = "shutdown"

// Retire: Kill every program, and exit after so long, used or not: the files are kept for somebody who wants to look.
type Retire struct {
	Op     string `json:"op"`
	KeepMS int64  `json:"keep_ms"`
}

const OpRetire = "retire"

type StatusReport struct {
	Type                string `json:"type"`
	UptimeMS            int64  `json:"uptime_ms"`
	IdleMS              int64  `json:"idle_ms"`
	LifetimeLeftMS      *int64 `json:"lifetime_left_ms,omitempty"`
	RunningExecs        int64  `json:"running_execs"`
	Connections         int64  `json:"connections"`
	WorkspaceTotalBytes int64  `json:"workspace_total_bytes"`
	WorkspaceFreeBytes  int64  `json:"workspace_free_bytes"`
	WorkspaceFreeFiles  int64  `json:"workspace_free_files"`
}

const TypeStatusReport = "status_report"

// Done: Reply of what has nothing else to say.
type Done struct {
	Type string `json:"type"`
}

const TypeDone = "done"

// Failure: Reply of what could not be done.
type Failure struct {
	Type string    `json:"type"`
	Code ErrorCode `json:"code"`
	// one sentence, for a person
	Message string `json:"message"`
}

const TypeFailure = "failure"

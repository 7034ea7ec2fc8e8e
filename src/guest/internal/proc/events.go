package proc

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/slots"
	"holdfast/guest/internal/wire"
)

// counters are the kernel's files that tell why a program failed. They stay open: every exec reads them.
type counters struct {
	memory, pids int // descriptors; negative: there is none
	workspace    string
}

func openCounters(config wire.GuestConfig) counters {
	open := func(path *string) int {
		if path == nil {
			return -1
		}
		file, err := unix.Open(*path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1
		}
		return file
	}
	return counters{open(config.MemoryEvents), open(config.PidsEvents), config.Workspace}
}

// events is what the counters said before a program: only what it changed is its own.
type events struct {
	counters
	oomKills     int64
	forksRefused int64
}

func (v *events) begin() {
	v.oomKills = counter(v.memory, "oom_kill")
	v.forksRefused = counter(v.pids, "max")
}

// judge names the end cause. What we did ourselves counts first; the kernel's reasons count only for a program
// that failed, since one that got over them has completed.
func (v *events) judge(ours wire.EndCause, failed, lost bool) wire.EndCause {
	slots.Enter()
	defer slots.Leave()
	switch {
	case ours != "":
		return ours
	case failed && counter(v.memory, "oom_kill") > v.oomKills:
		return wire.EndCauseOom
	case lost:
		return wire.EndCauseLost
	case failed && v.forkRefused():
		return wire.EndCausePidsLimit
	case failed && full(v.workspace):
		return wire.EndCauseDiskFull
	default:
		return wire.EndCauseCompleted
	}
}

func (v *events) forkRefused() bool { return counter(v.pids, "max") > v.forksRefused }

// counter reads `name N` from a file of counters.
func counter(file int, name string) int64 {
	if file < 0 {
		return 0
	}
	var raw [1024]byte
	got, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(file), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	for _, line := range strings.Split(string(raw[:got]), "\n") {
		if key, value, _ := strings.Cut(line, " "); key == name {
			number, _ := strconv.ParseInt(value, 10, 64)
			return number
		}
	}
	return 0
}

// full: no block or no inode is left, within what rounding to pages hides.
func full(workspace string) bool {
	var space unix.Statfs_t
	if unix.Statfs(workspace, &space) != nil || space.Blocks == 0 {
		return false
	}
	return space.Bavail*uint64(space.Bsize) < 64<<10 || space.Files > 0 && space.Ffree == 0
}

// startFailure says why a program could not be started.
func startFailure(errno syscall.Errno, work job) error {
	program := wire.ToWire(work.Path)
	if errno == syscall.EAGAIN || errno == syscall.ENOMEM {
		return errNoFork
	}
	if err := executable(work.Path); err != nil {
		return err
	}
	switch errno {
	case syscall.ENOENT:
		return wire.Fail(wire.ErrorCodeCommandNotFound, "%s exists, but the interpreter that it names does not", program)
	case syscall.ENOEXEC:
		return wire.Fail(wire.ErrorCodeNotExecutable, "%s is neither a program nor a script with a #! line", program)
	case syscall.EACCES, syscall.EPERM:
		return wire.Fail(wire.ErrorCodeNotExecutable, "the kernel refuses to execute %s: %v", program, errno)
	case syscall.E2BIG:
		return wire.Fail(wire.ErrorCodeArgumentTooLong, "arguments and environment are too long for the kernel: write them to a file")
	default:
		return wire.Fail(wire.ErrorCodeInternal, "%s could not be started: %v", program, errno)
	}
}

// errNoFork is a result, not a refusal: the sandbox's own programs took the last process.
var errNoFork = errors.New("no process is left")

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

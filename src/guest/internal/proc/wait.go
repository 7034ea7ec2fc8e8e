package proc

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaped is a process that ended. Its pid is 0 if none has, and negative if there is no child at all.
type reaped struct {
	pid    int
	status syscall.WaitStatus
	usage  syscall.Rusage
}

func reap(options int) reaped {
	var r reaped
	for {
		var err error
		if options&syscall.WNOHANG != 0 {
			pid, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&r.status)), uintptr(options),
				uintptr(unsafe.Pointer(&r.usage)), 0, 0)
			if r.pid = int(pid); errno != 0 {
				err = errno
			}
		} else {
			r.pid, err = syscall.Wait4(-1, &r.status, options, &r.usage)
		}
		if err == nil {
			return r
		}
		if err != syscall.EINTR {
			r.pid = -1
			return r
		}
	}
}

// wait reaps everything until no child is left. At first it waits for the child alone, through the poller, which costs
// less than to block a thread; where that takes a while, for whoever ends.
func (s *supervisor) wait(child int) report {
	result := report{reportHead: reportHead{Kind: reportEnded}}
	gone, swept := false, false
	take := func(r reaped) bool {
		if r.pid > 0 {
			result.CPUMicros += r.usage.Utime.Nano()/1000 + r.usage.Stime.Nano()/1000
			result.PeakBytes = max(result.PeakBytes, r.usage.Maxrss<<10)
		}
		if r.pid == child {
			result.Status, gone = r.status, true
		}
		return r.pid > 0
	}
	if s.early {
		_ = s.ends.raw.Read(func(uintptr) bool {
			for !gone && take(reap(syscall.WNOHANG)) {
			}
			return gone
		})
	}
	for {
		next := reap(syscall.WNOHANG)
		if next.pid == 0 {
			if gone && !swept && s.parking.head.keep == 0 {
				swept = true
				s.mu.Lock()
				s.sweep()
				s.mu.Unlock()
			}
			next = reap(0)
		}
		if !take(next) {
			return result
		}
	}
}

// childless is the kernel's word that nothing is beneath a child subreaper: whoever loses its parent is its child.
// WNOWAIT leaves the dead for whoever reaps.
func childless() bool {
	var info unix.Siginfo
	return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

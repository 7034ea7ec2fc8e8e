// Package confine is what the guest puts on itself before it starts a tenant's program, which inherits it:
// no new privileges, resource limits and a seccomp filter. Nothing here is skipped when it cannot be had.
package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// Apply confines the calling process, all its threads, and everything it starts from now on; there is no
// way back. With network, sockets of the internet and netlink families are left open too. After an error
// the process may be half confined: it must not start anything.
func Apply(limits wire.GuestLimits, network bool) error {
	if err := setLimits(limits); err != nil {
		return err
	}
	native, ok := architectures[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is no seccomp filter for %s", runtime.GOARCH)
	}
	filter, err := build(native, network)
	if err != nil {
		return err
	}
	return install(filter)
}

// install loads the filter into every thread of the process. It sets no_new_privs on this thread, without
// which an unprivileged process may not load a filter; TSYNC carries both to the other threads.
func install(filter []unix.SockFilter) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs cannot be set: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("the seccomp filter cannot be installed: %w", errno)
	}
	if thread != 0 { // the kernel names a thread that has a filter of its own
		return fmt.Errorf("the seccomp filter cannot be installed: thread %d does not take it", thread)
	}
	return nil
}

// Harden keeps programs of the same user away from this process: no /proc/<pid>/mem, no /proc/<pid>/fd, no
// ptrace, no core. It is not inherited. From then on, this process's files in /proc belong to root.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("the process cannot be made undumpable: %w", err)
	}
	return nil
}

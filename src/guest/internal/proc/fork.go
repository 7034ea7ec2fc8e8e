package proc

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the runtime does around a fork; gVisor uses these too, so they stay.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// supervisorFiles are the numbers under which a supervisor finds its orders, its jobs and the way for its reports.
var supervisorFiles = [3]uintptr{0, 1, 3}

// startSelf starts this program again as a supervisor, in a session of its own, with these files, our stderr and no
// environment.
//
// syscall.ForkExec would not do: it waits until the child executes, and with it the whole runtime. A tenant that stops
// the child before that would stop us, and with us every clock of the sandbox. Here nothing is waited for. A child
// that gets no further is found out like any other supervisor that does not answer.
func startSelf(files [3]int, arguments []string) (pid int, err error) {
	program, err := unix.BytePtrFromString("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	argv, err := syscall.SlicePtrFromStrings(append([]string{"guest"}, arguments...))
	if err != nil {
		return 0, err
	}
	environment := []*byte{nil}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	child, errno := forkSelf(program, &argv[0], &environment[0], &files)
	if errno != 0 {
		return 0, errno
	}
	return int(child), nil
}

// forkSelf: in the child, from clone to execve, nothing but plain system calls is possible.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkSelf(program *byte, argv, environment **byte, files *[3]int) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild()
	for number := uintptr(1); number < 65; number++ { // what we ignore, programs must not
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, number, uintptr(unsafe.Pointer(&defaultAction)), 0, 8, 0, 0)
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	for index, number := range &supervisorFiles {
		if errno == 0 && uintptr(files[index]) != number {
			_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, uintptr(files[index]), number, 0)
		} else if errno == 0 {
			_, _, errno = syscall.RawSyscall(unix.SYS_FCNTL, number, unix.F_SETFD, 0)
		}
	}
	if errno == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(program)),
			uintptr(unsafe.Pointer(argv)), uintptr(unsafe.Pointer(environment)))
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 253, 0, 0)
	}
}

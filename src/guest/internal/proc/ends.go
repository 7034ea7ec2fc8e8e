package proc

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ends tells of the ends of children, through a file that Go's poller knows: a set of pidfds, of which there is one.
type ends struct {
	file *os.File
	raw  syscall.RawConn
	set  int
}

// newEnds fails where the kernel has no pidfds, or an outer filter does not let us have them.
func newEnds() (*ends, error) {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, err
	}
	unix.Close(self)
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(set, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(set), "ends")
	raw, err := file.SyscallConn()
	return &ends{file, raw, set}, err
}

// add gives a descriptor: closing it takes the child out again.
func (e *ends) add(pid int) (int, error) {
	child, _, errno := unix.RawSyscall(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	_, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(e.set), unix.EPOLL_CTL_ADD, child, uintptr(unsafe.Pointer(&event)), 0, 0)
	if errno != 0 {
		closeNow(int(child))
		return -1, errno
	}
	return int(child), nil
}

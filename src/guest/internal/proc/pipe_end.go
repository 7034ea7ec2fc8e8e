package proc

import (
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pipeEnd is an end of a pipe between the guest and a supervisor. Pipes, since whoever reads from a socket wakes the one
// who wrote. The system calls never block, so they are made without a word to Go's scheduler, which would wake a thread to
// look after each.
type pipeEnd struct {
	file *os.File
	raw  syscall.RawConn
}

func openEnd(descriptor int) (pipeEnd, error) {
	if err := unix.SetNonblock(descriptor, true); err != nil {
		return pipeEnd{}, err
	}
	file := os.NewFile(uintptr(descriptor), "pipe")
	raw, err := file.SyscallConn()
	return pipeEnd{file, raw}, err
}

func (p pipeEnd) write(data []byte) error {
	var errno syscall.Errno
	err := p.raw.Write(func(pipe uintptr) bool {
		for len(data) > 0 {
			var wrote uintptr
			if wrote, _, errno = unix.RawSyscall(unix.SYS_WRITE, pipe, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data))); errno != 0 {
				return errno != unix.EAGAIN
			}
			data = data[wrote:]
		}
		return true
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

func (p pipeEnd) readAll(into []byte) error {
	var errno syscall.Errno
	ended := false
	err := p.raw.Read(func(pipe uintptr) bool {
		for len(into) > 0 && !ended {
			var got uintptr
			if got, _, errno = unix.RawSyscall(unix.SYS_READ, pipe, uintptr(unsafe.Pointer(&into[0])), uintptr(len(into))); errno != 0 {
				return errno != unix.EAGAIN
			}
			ended = got == 0
			into = into[got:]
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case errno != 0:
		return errno
	case ended:
		return io.EOF
	}
	return nil
}

// closeNow is for what cannot block: pipes, and a pidfd.
func closeNow(descriptor int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(descriptor), 0, 0) }

package server

import (
	"io"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quick reads and writes a socket without a word to Go's scheduler. The calls never block, and the scheduler would wake
// a thread to look after each of them; that is a third of what an exec costs us.
type quick struct{ raw syscall.RawConn }

func quickly(conn net.Conn) (quick, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	return quick{raw}, err
}

func (q quick) Read(into []byte) (got int, err error) {
	if len(into) == 0 {
		return 0, nil
	}
	var errno syscall.Errno
	err = q.raw.Read(func(socket uintptr) bool {
		got, errno = call(unix.SYS_READ, socket, into)
		return errno != unix.EAGAIN
	})
	switch {
	case err == nil && errno != 0:
		return 0, errno
	case err == nil && got == 0:
		return 0, io.EOF
	}
	return got, err
}

func (q quick) Write(data []byte) (sent int, err error) {
	var errno syscall.Errno
	err = q.raw.Write(func(socket uintptr) bool {
		for sent < len(data) {
			var got int
			if got, errno = call(unix.SYS_WRITE, socket, data[sent:]); errno != 0 {
				return errno != unix.EAGAIN
			}
			sent += got
		}
		return true
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return sent, err
}

func call(number, socket uintptr, data []byte) (int, syscall.Errno) {
	for {
		got, _, errno := unix.RawSyscall(number, socket, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
		if errno != unix.EINTR {
			return int(got), errno
		}
	}
}

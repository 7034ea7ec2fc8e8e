package server

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dialPatience = 5 * time.Second
	dialBuffer   = 256 << 10
	dialPipe     = 1 << 20
)

// Dial joins two files to a serving guest's socket, until the guest ends. It lives among the tenants and takes of their
// processes: where no thread is to be had Go's runtime dies, so the loop needs one thread and allocates nothing.
func Dial(socket string, input, output *os.File) error {
	conn, err := connect(socket, time.Now().Add(dialPatience))
	if err != nil {
		return err
	}
	defer unix.Close(conn)
	in, out := int(input.Fd()), int(output.Fd())
	for _, fd := range []int{conn, in, out} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		// Fewer turns for all who pass it on; what is no pipe, or may not be so large, works as it is.
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, dialPipe)
	}
	there := flow{from: in, to: conn, buffer: make([]byte, dialBuffer)}
	back := flow{from: conn, to: out, buffer: make([]byte, dialBuffer)}
	waiting := make([]unix.PollFd, 2)
	for !back.ended() {
		if there.ended() && !there.closed {
			there.closed = true
			_ = unix.Shutdown(conn, unix.SHUT_WR) // the host said all; the answers may still be coming
		}
		waiting[0], waiting[1] = there.next(), back.next()
		if _, err := unix.Poll(waiting, -1); err != nil && err != unix.EINTR {
			return err
		}
		if waiting[0].Revents != 0 {
			there.move()
		}
		if waiting[1].Revents != 0 {
			back.move()
		}
	}
	return back.err
}

// flow is one direction: what was read is written before more is read.
type flow struct {
	from, to int
	buffer   []byte
	pending  []byte
	eof      bool
	closed   bool
	err      error
}

func (f *flow) ended() bool { return f.err != nil || f.eof && len(f.pending) == 0 }

// next is what the direction waits for.
func (f *flow) next() unix.PollFd {
	switch {
	case f.ended():
		return unix.PollFd{Fd: -1}
	case len(f.pending) > 0:
		return unix.PollFd{Fd: int32(f.to), Events: unix.POLLOUT}
	default:
		return unix.PollFd{Fd: int32(f.from), Events: unix.POLLIN}
	}
}

// move reads if nothing is pending, and writes what it can.
func (f *flow) move() {
	if len(f.pending) == 0 {
		n, err := unix.Read(f.from, f.buffer)
		if passing(err) {
			return
		}
		if err != nil || n == 0 {
			f.eof = true
			return
		}
		f.pending = f.buffer[:n]
	}
	n, err := unix.Write(f.to, f.pending)
	if passing(err) {
		return
	}
	if err != nil {
		f.err = err
		return
	}
	f.pending = f.pending[n:]
}

func passing(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

// connect waits for a guest that has just been started and does not listen yet.
func connect(socket string, deadline time.Time) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
		if err == nil {
			return fd, nil
		}
		if time.Now().After(deadline) {
			unix.Close(fd)
			return -1, &os.PathError{Op: "connect", Path: socket, Err: err}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

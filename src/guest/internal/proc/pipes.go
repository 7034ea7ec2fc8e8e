package proc

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// pipes are the files of a program: our ends, and its own, which it wants blocking.
type pipes struct {
	stdin  *os.File
	ours   [2]int // of stdout and stderr
	theirs [3]int
}

// devNull is the stdin of all programs that have none.
var devNull = sync.OnceValues(func() (int, error) {
	return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

func openPipes(stdin wire.StdinMode) (p pipes, err error) {
	p.ours, p.theirs = [2]int{-1, -1}, [3]int{-1, -1, -1}
	if stdin == wire.StdinModePipe {
		var ours int
		if p.theirs[0], ours, err = pipe(0); err == nil {
			p.stdin = os.NewFile(uintptr(ours), "stdin")
		}
	} else {
		p.theirs[0], err = devNull()
	}
	for index := range p.ours {
		if err == nil {
			p.theirs[index+1], p.ours[index], err = pipe(1)
		}
	}
	if err != nil {
		p.closeTheirs()
		p.closeOurs()
	}
	return p, err
}

// pipe gives the program's end (0 to read, 1 to write) and ours.
func pipe(end int) (theirs, ours int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, err
	}
	// For a pipe, this is all that there is of flags, and it never blocks.
	_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, uintptr(ends[end]), unix.F_SETFL, 0)
	if errno != 0 {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return -1, -1, errno
	}
	return ends[end], ends[1-end], nil
}

func (p *pipes) closeTheirs() {
	shared, _ := devNull()
	for _, end := range p.theirs {
		if end >= 0 && end != shared {
			closeNow(end)
		}
	}
}

func (p *pipes) closeOurs() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, end := range p.ours {
		if end >= 0 {
			closeNow(end)
		}
	}
}

// Package proc runs programs so that nothing of them survives their end.
//
//	guest (PID 1) ── one supervisor for each exec ── the program ── whatever it starts
//
// A supervisor is the guest again, as a child subreaper: a process that loses its parent (setsid, nohup, double
// fork) becomes the supervisor's child, so an exec's processes are always exactly what is beneath its supervisor.
// If a program manages to kill its supervisor, its processes fall to PID 1, which owns nothing but supervisors
// and therefore kills every other child that it finds. A supervisor that is left without children is used again.
//
// The program itself is forked before it is known: a parked child of the supervisor takes the job from a socket and
// executes it. The supervisor hears of it when it ends, or when the guest finds that it takes a while.
package proc

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// job is a program to start; everything is resolved already.
type job struct {
	Number     int
	Path       string
	Argv, Env  []string
	Cwd        string
	Credential *syscall.Credential
	Keep       bool // let processes that the program leaves behind live on
}

// room is where in the memory of a supervisor its jobs will lie, and the number of the one that was taken.
type room struct{ small, large, taken uintptr }

// packet is a job as a parked child takes it: head, steps, and contents to which the steps point. Large contents come
// apart; then the steps find them in a file.
func (j job) packet(to room) (packet, large []byte) {
	head := jobHead{number: j.Number}
	if j.Keep {
		head.keep = 1
	}
	most := 10 * stepBytes
	texts := append(append([]string{j.Path, j.Cwd}, j.Argv...), j.Env...)
	size := uintptr(8 * (len(j.Argv) + len(j.Env) + 2))
	pointers := size
	for _, text := range texts {
		size += uintptr(len(text)) + 1
	}
	at := to.small + most
	if most+size > maxSmallJob {
		at, head.size = to.large, int(size)
	}
	contents := make([]byte, 0, size)
	next := at + pointers
	address := func(text string) uintptr {
		defer func() { next += uintptr(len(text)) + 1 }()
		return next
	}
	path, cwd := address(j.Path), address(j.Cwd)
	for _, list := range [][]string{j.Argv, j.Env} {
		for _, text := range list {
			contents = appendWord(contents, address(text))
		}
		contents = appendWord(contents, 0)
	}
	for _, text := range texts {
		contents = append(append(contents, text...), 0)
	}

	packet = append(packet, raw(&head)...)
	steps := len(packet)
	add := func(number uintptr, args ...uintptr) {
		next := step{number: number}
		copy(next.args[:], args)
		packet = append(packet, raw(&next)...)
	}
	add(unix.SYS_RECVFROM, jobSocket, to.taken, unsafe.Sizeof(head.number))
	if head.size > 0 {
		add(unix.SYS_MMAP, at, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_FIXED, jobContents, 0)
		add(unix.SYS_CLOSE, jobContents)
	}
	if j.Credential != nil {
		add(unix.SYS_SETGROUPS, 0, 0)
		add(unix.SYS_SETGID, uintptr(j.Credential.Gid))
		add(unix.SYS_SETUID, uintptr(j.Credential.Uid))
	}
	add(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0)
	add(unix.SYS_FCNTL, 2, unix.F_GETFD) // the limit on open files may have kept its files from it
	add(unix.SYS_CHDIR, cwd)
	add(unix.SYS_EXECVE, path, at, at+8*uintptr(len(j.Argv)+1))
	if head.size > 0 {
		return packet, contents
	}
	packet = append(packet, make([]byte, steps+int(most)-len(packet))...)
	return append(packet, contents...), nil
}

func appendWord(to []byte, word uintptr) []byte {
	return append(to, raw(&word)...)
}

// sendJob puts a job with its files before a supervisor's parked child. There is room: it is the only one.
func sendJob(socket int, packet []byte, files ...int) error {
	rights := unix.UnixRights(files...)
	part := unix.Iovec{Base: &packet[0], Len: uint64(len(packet))}
	message := unix.Msghdr{Iov: &part, Iovlen: 1, Control: &rights[0], Controllen: uint64(len(rights))}
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(socket), uintptr(unsafe.Pointer(&message)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if errno != 0 {
		return errno
	}
	return nil
}

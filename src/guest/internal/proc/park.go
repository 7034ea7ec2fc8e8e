package proc

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A parked child is a program that has everything but its name: the supervisor makes it before it is needed, so that a
// fork is no part of what an exec costs. It waits for a job at the socket that the guest sends jobs to, and executes it
// without a word to the supervisor.
//
// It shares the supervisor's memory until it executes, so nothing is copied for it; being no thread that Go's runtime
// knows, it can run no Go. What it does is a list of system calls in that memory: some that the supervisor wrote, of
// which the last receives the others, behind itself.

// step is one system call of a parked child.
type step struct {
	number uintptr
	least  int // the smallest result with which the child goes on
	args   [6]uintptr
}

const (
	stepBytes   = unsafe.Sizeof(step{})
	parkSteps   = 72
	maxSmallJob = 64 << 10 // bytes of a job that travels in one packet; those of a larger one come in a file
	maxLargeJob = 32 << 20
	anyResult   = -1 << 12
	parkPause   = time.Millisecond
	// Files of a parked child: the program's own are 0, 1 and 2.
	jobSocket   = 3
	jobContents = 4
)

// lot is the memory in which a child is parked. The assembler knows the first two fields.
type lot struct {
	child   uint32 // its id; the kernel clears it when the child leaves this memory, by execve or by death
	_       uint32
	failure int // the error of the step that failed, negative
	taken   int // number of the job; 0: none yet
	head    jobHead
	parts   [2]unix.Iovec
	message unix.Msghdr
	rights  [64]byte
	steps   [parkSteps]step // at the end of it, so that they go on in the job
	job     [maxSmallJob]byte
}

// jobHead is what the supervisor must know of a job. It is the head of its packet.
type jobHead struct {
	number int
	keep   int // 1: let processes that the program leaves behind live on
	size   int // of the contents in a file
}

// parking is where a supervisor has its child wait.
type parking struct {
	*lot
	jobs  int            // the socket
	large unsafe.Pointer // maxLargeJob bytes of address space, and nothing there
}

func newParking(jobs int) (parking, error) {
	memory, err := unix.MmapPtr(-1, 0, nil, unsafe.Sizeof(lot{}), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return parking{}, err
	}
	large, err := unix.MmapPtr(-1, 0, nil, maxLargeJob, unix.PROT_NONE, nothing)
	return parking{(*lot)(memory), jobs, large}, err
}

func (l parking) room() room {
	return room{uintptr(unsafe.Pointer(&l.job)), uintptr(l.large), uintptr(unsafe.Pointer(&l.taken))}
}

const nothing = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE

// number of the job that the child took.
func (l *lot) number() int { return int(atomic.LoadUintptr((*uintptr)(unsafe.Pointer(&l.taken)))) }

// left says that the child has executed its program, or is dead.
func (l *lot) left() bool { return atomic.LoadUint32(&l.child) == 0 }

var defaultAction action
var noSignals, allSignals uint64 = 0, ^uint64(0)

// park makes a child that waits for a job.
func (l parking) park() (pid int, err error) {
	if l.head.size > 0 { // let go of the file
		if _, err := unix.MmapPtr(-1, 0, l.large, maxLargeJob, unix.PROT_NONE, nothing|unix.MAP_FIXED); err != nil {
			return 0, err
		}
	}
	l.head, l.taken, l.failure = jobHead{}, 0, 0
	l.parts[0] = unix.Iovec{Base: (*byte)(unsafe.Pointer(&l.head)), Len: uint64(unsafe.Sizeof(l.head))}
	l.parts[1] = unix.Iovec{Base: &l.job[0], Len: maxSmallJob}
	l.message = unix.Msghdr{Iov: &l.parts[0], Iovlen: 2, Control: &l.rights[0], Controllen: uint64(len(l.rights))}

	steps := make([]step, 0, parkSteps)
	add := func(least int, number uintptr, args ...uintptr) {
		next := step{number: number, least: least}
		copy(next.args[:], args)
		steps = append(steps, next)
	}
	add(0, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)) // nobody else would tell of its job's end
	for number := uintptr(1); number < 65; number++ {                    // what we handle, programs must not
		if number != uintptr(unix.SIGKILL) && number != uintptr(unix.SIGSTOP) {
			add(anyResult, unix.SYS_RT_SIGACTION, number, uintptr(unsafe.Pointer(&defaultAction)), 0, 8)
		}
	}
	add(0, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&noSignals)), 0, 8)
	add(0, unix.SYS_SETSID)
	add(anyResult, unix.SYS_DUP3, uintptr(l.jobs), jobSocket, unix.O_CLOEXEC)
	for _, file := range []uintptr{0, 1, 2, jobContents} { // the files of a job take the lowest numbers that are free
		add(anyResult, unix.SYS_CLOSE, file)
	}
	// A job is looked at, and stays where it is; its own first step takes it away. A child that is killed before has not
	// begun, and another may have the job.
	add(1, unix.SYS_RECVMSG, jobSocket, uintptr(unsafe.Pointer(&l.message)), unix.MSG_PEEK)
	first := parkSteps - len(steps)
	copy(l.steps[first:], steps)

	// No signal may find the child while it still has our handlers: they would run in our memory.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before uint64
	setMask(&allSignals, &before)
	pid = clone(unix.CLONE_VM|unix.CLONE_PARENT_SETTID|unix.CLONE_CHILD_CLEARTID|uintptr(unix.SIGCHLD), l.lot, &l.steps[first])
	setMask(&before, nil)
	if pid < 0 {
		return 0, syscall.Errno(-pid)
	}
	return pid, nil
}

// pause comes before the next child is made, since whoever waits for the last one's result shall have the processor first.
// It ends when a job waits. There is nothing else to do between jobs, so Go's scheduler need not know.
func (l parking) pause() {
	poll := unix.PollFd{Fd: int32(l.jobs), Events: unix.POLLIN}
	timeout := unix.NsecToTimespec(parkPause.Nanoseconds())
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 8, 0)
}

func setMask(mask, before *uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)),
		uintptr(unsafe.Pointer(before)), 8, 0, 0)
}

func clone(flags uintptr, memory *lot, first *step) (pid int)

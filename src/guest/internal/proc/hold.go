package proc

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hold makes this process outlive its tenants: no signal that a tenant can send ends it, and it has the threads that
// it needs before a fork bomb takes the last one (Go's runtime dies when it cannot make a thread).
func Hold(threads int) {
	ignored := make(chan os.Signal, 1)
	for number := syscall.Signal(1); number < 65; number++ {
		switch number {
		// KILL and STOP cannot be caught, CHLD is the reaper's, URG is how Go's scheduler preempts, and CONT has to
		// continue us and nothing else.
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGCONT:
			continue
		}
		if os.Getpid() == 1 {
			ignore(number)
		} else {
			signal.Notify(ignored, number)
		}
	}
	go func() {
		for range ignored {
		}
	}()
	makeThreads(threads)
}

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// ignore takes away the handler that Go's runtime has for a signal: a SIGSEGV that comes by sigqueue looks to it like one
// of our own, and it dies of that. A real one still ends us. The default is not enough, although the kernel drops what
// a tenant sends to a PID 1 without a handler: it does not while our first thread has the signal blocked, in another
// handler or around a fork.
func ignore(number syscall.Signal) {
	ignored := action{handler: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&ignored)), 0, 8, 0, 0)
}

// makeThreads has so many goroutines sit on threads of their own at once; Go keeps the threads afterwards.
func makeThreads(count int) {
	var ready, done sync.WaitGroup
	ready.Add(count)
	done.Add(count)
	for range count {
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
		}()
	}
	done.Wait()
}

func childSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	return signals
}

// OfferToOOM makes the kernel choose this process and its children before the guest.
func OfferToOOM() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}

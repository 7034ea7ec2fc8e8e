package proc

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const (
	startedAfter = time.Millisecond
	// How long a supervisor tries to kill what is beneath it before the guest kills the supervisor.
	killPatience = 1500 * time.Millisecond
	// Names of left processes that travel with a result.
	maxLeft = 16
)

// Supervise is the whole life of a supervisor: it takes jobs from the socket, one at a time, until the socket ends.
// Confine puts the sandbox's limits on this process, and so on all that it starts; if it fails, no job is started.
func Supervise(socket *os.File, confine func() error) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	conn, err := net.FileConn(socket)
	if err != nil {
		return err
	}
	socket.Close()
	s := supervisor{guest: channel{conn.(*net.UnixConn)}, confined: confine()}
	for {
		var next order
		files, err := s.guest.receive(&next)
		switch {
		case err != nil: // the guest is gone, or wants us to go
			killTree(os.Getpid(), nil, childless, time.Now().Add(killPatience))
			return nil
		case next.Job != nil && len(files) == 3:
			if err := s.run(*next.Job, files); err != nil {
				return err
			}
		default:
			s.signal(next)
		}
	}
}

// supervisor is this process: at most one job at a time.
type supervisor struct {
	guest    channel
	confined error
	// sweeping counts the sweeps under way; met holds what they found.
	sweeping sync.WaitGroup
	mu       sync.Mutex
	current  int // number of the job, 0 between jobs
	met      []process
}

// run starts a job and reports; then the job is waited for beside the orders, so that it can be killed.
func (s *supervisor) run(next job, files []int) error {
	defer func() {
		for _, file := range files {
			unix.Close(file)
		}
	}()
	if s.confined != nil {
		return s.guest.send(report{Refused: s.confined.Error()})
	}
	pid, errno := next.start(files)
	if errno != 0 {
		return s.guest.send(report{Failed: errno})
	}
	s.mu.Lock()
	s.current = next.Number
	s.mu.Unlock()
	// A program that ends at once needs no word that it has started: each word wakes the guest.
	started := time.AfterFunc(startedAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.current == next.Number {
			_ = s.guest.send(report{Started: true})
		}
	})
	go func() {
		ended := s.wait(pid, next.Keep)
		started.Stop()
		_ = s.guest.send(report{Started: true, Ended: &ended})
	}()
	return nil
}

func (j job) start(files []int) (pid int, errno syscall.Errno) {
	attributes := syscall.ProcAttr{
		Dir:   j.Cwd,
		Env:   stringsOf(j.Env),
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: j.Credential},
	}
	pid, err := syscall.ForkExec(j.Path, stringsOf(j.Argv), &attributes)
	if err != nil && !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	return pid, errno
}

// signal is for the current job only; the lock keeps the job from ending under it.
func (s *supervisor) signal(next order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case next.Number != s.current:
	case next.Signal == int(unix.SIGKILL):
		s.sweep()
	default:
		signalTree(os.Getpid(), syscall.Signal(next.Signal))
	}
}

// sweep starts to kill everything beneath us; the job's own loop reaps it. The caller holds the lock.
func (s *supervisor) sweep() {
	s.sweeping.Add(1)
	go func() {
		defer s.sweeping.Done()
		// Until nothing is left: nobody else ends what a program leaves when it ends by itself.
		met, _ := killTree(os.Getpid(), nil, childless, time.Now().Add(24*time.Hour))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.met = append(s.met, met...)
	}()
}

// wait reaps everything until no child is left.
func (s *supervisor) wait(main int, keep bool) ending {
	var result ending
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, 0, &usage)
		if err == syscall.EINTR {
			continue
		}
		if err != nil { // ECHILD: nothing is left
			break
		}
		result.CPUMicros += usage.Utime.Nano()/1000 + usage.Stime.Nano()/1000
		result.PeakBytes = max(result.PeakBytes, usage.Maxrss<<10)
		if pid == main {
			result.Status = status
			if !keep && !childless() {
				s.mu.Lock()
				s.sweep()
				s.mu.Unlock()
			}
		}
	}
	s.mu.Lock()
	s.current = 0
	s.mu.Unlock()
	s.sweeping.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	result.Left, result.LeftCount = left(s.met, main)
	s.met = nil
	return result
}

// childless is the kernel's word that nothing is beneath a child subreaper: whoever loses its parent is its child.
// WNOWAIT leaves the dead for whoever reaps.
func childless() bool {
	var info unix.Siginfo
	return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

func stringsOf(raw [][]byte) []string {
	out := make([]string, len(raw))
	for index, value := range raw {
		out[index] = string(value)
	}
	return out
}

// left describes the processes that were killed beside the main one.
func left(met []process, main int) (first []wire.LeftProcess, count int64) {
	first = []wire.LeftProcess{}
	for _, p := range met {
		if p.pid == main {
			continue
		}
		if count++; count <= maxLeft {
			first = append(first, wire.LeftProcess{Pid: int64(p.pid), Name: wire.ToWire(p.name)})
		}
	}
	return first, count
}

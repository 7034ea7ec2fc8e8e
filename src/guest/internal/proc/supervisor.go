package proc

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const (
	// How long a supervisor tries to kill what is beneath it before the guest kills the supervisor.
	killPatience = 1500 * time.Millisecond
	// Names of left processes that travel with a result.
	maxLeft = 16
)

// supervisor is this process: at most one job at a time.
type supervisor struct {
	reports pipeEnd
	parking parking
	ends    *ends // nil: there is no such thing here
	// sweeping counts the sweeps under way; met holds what they found.
	sweeping sync.WaitGroup

	mu      sync.Mutex
	child   int  // parked, or running a job; 0: none
	early   bool // it is waited for alone, and not yet for those that it leaves
	over    int  // number of the last job that was reported on
	told    int  // number of the last job of which the guest knows that it started
	closing bool
	retry   chan struct{} // a child could not be had, and a job waits
	met     []process
}

// Supervise is the whole life of a supervisor: its children take jobs from a socket, one at a time; it takes orders until
// there are no more to come. Confine puts the sandbox's limits on this process, and so on all that it starts.
func Supervise(confine func() error) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	// Our children's ends are waited for; a handler would only wake a thread at each.
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&defaultAction)), 0, 8, 0, 0)
	from, err := openEnd(int(supervisorFiles[0]))
	if err != nil {
		return err
	}
	s := supervisor{retry: make(chan struct{}, 1)}
	if s.reports, err = openEnd(int(supervisorFiles[2])); err != nil {
		return err
	}
	if err := confine(); err != nil {
		return sendReport(s.reports, report{reportHead{Kind: reportRefused}, reportRest{Refused: err.Error()}})
	}
	if s.parking, err = newParking(int(supervisorFiles[1])); err != nil {
		return err
	}
	s.ends, _ = newEnds()
	if err := sendReport(s.reports, report{reportHead: reportHead{Kind: reportReady, Room: s.parking.room()}}); err != nil {
		return err
	}
	go s.work()
	for {
		var next order
		switch err := from.readAll(raw(&next)); {
		case err != nil: // the guest is gone, or wants us to go
			s.mu.Lock()
			s.closing = true
			s.mu.Unlock()
			killTree(os.Getpid(), nil, childless, time.Now().Add(killPatience))
			return nil
		case next.Signal == 0:
			s.watch(next.Number)
		default:
			s.signal(next)
		}
	}
}

// work parks one child after the other, and reports what became of the jobs that they took.
func (s *supervisor) work() {
	asked := false // for a child, since a job waits for one that could not be had
	for {
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			for reap(0).pid > 0 {
			}
			return
		}
		child, err := s.parking.park()
		end := -1
		if err == nil {
			s.child = child
			if s.ends != nil {
				end, _ = s.ends.add(child)
				_ = s.ends.file.SetReadDeadline(time.Time{})
				s.early = end >= 0
			}
		}
		s.mu.Unlock()
		switch {
		case err == nil:
			s.report(s.wait(child))
			if end >= 0 {
				closeNow(end)
			}
			asked = false
			s.parking.pause()
		case asked:
			s.dismiss(errnoOf(err))
			asked = false
		default:
			<-s.retry
			asked = true
		}
	}
}

// dismiss takes a job that no child can take.
func (s *supervisor) dismiss(errno syscall.Errno) {
	var head jobHead
	rights := make([]byte, len(s.parking.rights))
	_, size, _, _, err := unix.Recvmsg(s.parking.jobs, raw(&head), rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:size]); err == nil {
		for _, message := range messages {
			files, _ := unix.ParseUnixRights(&message)
			for _, file := range files {
				unix.Close(file)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = head.number
	_ = sendReport(s.reports, report{reportHead: reportHead{Kind: reportFailed, Failed: errno}})
}

// report tells the guest of a job's end. A child that had none was killed by a tenant.
func (s *supervisor) report(result report) {
	s.mu.Lock()
	main := s.child
	s.child = 0
	number := s.parking.number()
	if number == 0 {
		s.mu.Unlock()
		if result.Status.Exited() { // there are no jobs to come: the guest is gone
			os.Exit(0)
		}
		return
	}
	s.over = number // no order is for it from now on
	s.mu.Unlock()
	s.sweeping.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parking.failure != 0 {
		result.Kind, result.Failed = reportFailed, syscall.Errno(-s.parking.failure)
	}
	result.Left, result.LeftCount = left(s.met, main)
	s.met = nil
	_ = sendReport(s.reports, result)
}

// watch waits until a job has started or ended, and says so if it has started. Nobody waits long: the guest kills a
// supervisor whose children do not get so far.
func (s *supervisor) watch(number int) {
	for pause := 50 * time.Microsecond; !s.begun(number); pause = min(2*pause, 2*time.Millisecond) {
		pause := unix.NsecToTimespec(pause.Nanoseconds())
		_ = unix.Nanosleep(&pause, nil) // Go's own sleep is no shorter than a millisecond
	}
}

func (s *supervisor) begun(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over >= number || s.told == number || s.parking.number() > number: // the last: it was never sent
		return true
	case s.child == 0:
		select {
		case s.retry <- struct{}{}:
		default:
		}
		return false
	case s.parking.number() != number || !s.parking.left():
		_ = unix.Kill(s.child, unix.SIGCONT) // a tenant may have stopped it
		return false
	case s.parking.failure == 0:
		s.told = number
		_ = sendReport(s.reports, report{reportHead: reportHead{Kind: reportStarted}})
		if s.early { // whoever it leaves behind is to be reaped too
			_ = s.ends.file.SetReadDeadline(time.Now())
		}
	}
	return true
}

// signal is for the current job only; the lock keeps the job from ending under it.
func (s *supervisor) signal(next order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case next.Number != s.parking.number() || next.Number == s.over:
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

// left describes the processes that were killed beside the main one.
func left(met []process, main int) (first []wire.LeftProcess, count int64) {
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

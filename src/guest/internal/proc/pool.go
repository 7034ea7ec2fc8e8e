package proc

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Idle supervisors that are kept. A burst of execs makes more; they stay while it lasts, since a new one costs more than
// an exec, and then go, since they count among the sandbox's processes.
const (
	maxIdle  = 8
	maxBurst = 32
	burst    = 2 * time.Second
)

// Pool has the supervisors, and reaps every child of the guest.
type Pool struct {
	arguments []string // of a supervisor process: the guest's own program and `supervise CONFIG`

	mu    sync.Mutex
	idle  []*worker
	known map[int]*worker // by pid; whatever else is our child was orphaned by a killed supervisor
	// a trim is on its way
	trimming bool
	// children that were reaped and not known
	strangers int

	sweeping sync.Mutex
}

// worker is the guest's end of one supervisor.
type worker struct {
	orders, reports pipeEnd
	jobs            int // socket
	pid             int
	gone            chan struct{} // closed when the process was reaped
	room            room          // known when it has said that it is ready
	sent            int           // jobs
	given           time.Time     // back to the pool
	closed          sync.Once
}

// order sends to a supervisor, which may have been stopped: then nobody waits for it.
func (w *worker) order(next order) error {
	_ = w.orders.file.SetWriteDeadline(time.Now().Add(killPatience))
	return w.orders.write(raw(&next))
}

// receive waits for a report.
func (w *worker) receive() (report, error) { return receiveReport(w.reports) }

// dead: killed by a tenant, and not yet reaped.
func (w *worker) dead() bool {
	var info [128]byte // siginfo_t; not all zero if there is somebody to reap
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(w.pid), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	return errno != 0 || info != [128]byte{}
}

func (w *worker) close() {
	w.closed.Do(func() {
		w.orders.file.Close()
		w.reports.file.Close()
		unix.Close(w.jobs)
	})
}

// NewPool starts the reaper and the first supervisor. Arguments start a supervisor; they come after the program's name.
func NewPool(arguments []string) *Pool {
	pool := &Pool{arguments: arguments, known: make(map[int]*worker)}
	// Where we are not PID 1, orphans must still come to us.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	go pool.reap(childSignals())
	go pool.warm()
	return pool
}

// take gives an idle supervisor, or a new one.
func (p *Pool) take() (*worker, error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		// The last one that is sure to have its child parked; else the one that had the longest time for it.
		at := len(p.idle) - 1
		for at > 0 && time.Since(p.idle[at].given) < 2*parkPause {
			at--
		}
		taken := p.idle[at]
		p.idle = append(p.idle[:at], p.idle[at+1:]...)
		if taken.dead() {
			go taken.close()
			continue
		}
		last := len(p.idle) == 0
		p.mu.Unlock()
		if last {
			go p.warm() // the next exec shall not wait for a start either
		}
		return taken, nil
	}
	p.mu.Unlock()
	return p.start()
}

// give takes a supervisor back that has no children left.
func (p *Pool) give(back *worker) {
	p.mu.Lock()
	keep := len(p.idle) < maxBurst && p.known[back.pid] == back // not one that was killed and reaped meanwhile
	if keep {
		back.given = time.Now()
		p.idle = append(p.idle, back)
		p.trimLater()
	}
	p.mu.Unlock()
	if !keep {
		back.close()
	}
}

// trimLater is called with the lock.
func (p *Pool) trimLater() {
	if len(p.idle) > maxIdle && !p.trimming {
		p.trimming = true
		time.AfterFunc(burst, p.trim)
	}
}

// trim lets those go that nobody needed for a while. The one at the front had the longest rest.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimming = false
	for len(p.idle) > maxIdle && time.Since(p.idle[0].given) >= burst {
		p.idle[0].close()
		p.idle = p.idle[1:]
	}
	p.trimLater()
}

func (p *Pool) warm() {
	if started, err := p.start(); err == nil {
		p.give(started)
	}
}

func (p *Pool) start() (*worker, error) {
	var orders, reports [2]int
	if err := unix.Pipe2(orders[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	defer unix.Close(orders[0])
	if err := unix.Pipe2(reports[:], unix.O_CLOEXEC); err != nil {
		unix.Close(orders[1])
		return nil, err
	}
	defer unix.Close(reports[1])
	jobs, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		unix.Close(orders[1])
		unix.Close(reports[0])
		return nil, err
	}
	defer unix.Close(jobs[1])
	started := &worker{jobs: jobs[0], gone: make(chan struct{})}
	started.orders, err = openEnd(orders[1])
	if err == nil {
		started.reports, err = openEnd(reports[0])
	}
	if err != nil {
		return nil, err
	}
	// The lock is held across the fork, so that the reaper cannot meet a child that it does not know yet.
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := startSelf([3]int{orders[0], jobs[1], reports[1]}, p.arguments)
	if err != nil {
		started.close()
		return nil, err
	}
	started.pid = pid
	p.known[pid] = started
	return started, nil
}

// wake continues a supervisor that was stopped by what it supervises.
func (p *Pool) wake(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[w.pid] == w {
		_ = unix.Kill(w.pid, unix.SIGCONT)
	}
}

// kill ends a supervisor that does not obey, and everything that was beneath it. Untaken: no child had taken the last job
// that was sent to it, and none will.
func (p *Pool) kill(w *worker) (untaken bool) {
	p.mu.Lock()
	if p.known[w.pid] == w { // not reaped yet, so the pid is still its own
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	<-w.gone
	p.sweepOrphans()
	// All that could have read what was sent are gone; of what they did not read, the kernel tells.
	_, _, err := unix.Recvfrom(w.jobs, make([]byte, 1), unix.MSG_DONTWAIT)
	w.close()
	return errors.Is(err, unix.ECONNRESET)
}

// sweepOrphans kills every descendant of the guest that no living supervisor answers for.
func (p *Pool) sweepOrphans() {
	p.sweeping.Lock() // one finds what all would
	defer p.sweeping.Unlock()
	// A chain that is between two processes whenever we look leaves its dead to us.
	last := p.reapedStrangers()
	quiet := func() bool {
		before := last
		last = p.reapedStrangers()
		return last == before
	}
	_, all := killTree(os.Getpid(), func(pid int) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.known[pid] != nil
	}, quiet, time.Now().Add(killPatience))
	if !all && os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // everything at once, other execs too: they are lost, but nothing gets away
	}
}

// KillAll ends every program and every supervisor.
func (p *Pool) KillAll() {
	killTree(os.Getpid(), nil, childless, time.Now().Add(killPatience))
}

// reapedStrangers counts the children that ended and were no supervisors, up to now.
func (p *Pool) reapedStrangers() int {
	for p.reapOne() {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.strangers
}

// reap collects every child that ended.
func (p *Pool) reap(signals <-chan os.Signal) {
	for range signals {
		for p.reapOne() {
		}
	}
}

func (p *Pool) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return err == syscall.EINTR
	}
	ended := p.known[pid]
	if ended == nil {
		p.strangers++
	} else {
		delete(p.known, pid)
		for at, w := range p.idle {
			if w == ended {
				p.idle = append(p.idle[:at], p.idle[at+1:]...)
				w.close() // one that works for an exec is that exec's to close: how it ended is to be read there
				break
			}
		}
		close(ended.gone)
		// Whatever it supervised is ours now, and nobody else's.
		go p.sweepOrphans()
	}
	return true
}

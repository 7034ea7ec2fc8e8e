package proc

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Idle supervisors that are kept; a burst of execs makes more, which then go.
const maxIdle = 8

// Pool has the supervisors, and reaps every child of the guest.
type Pool struct {
	arguments []string // of a supervisor process: the guest's own program and `supervise CONFIG`

	mu    sync.Mutex
	idle  []*worker
	known map[int]*worker // by pid; whatever else is our child was orphaned by a killed supervisor
	// children that were reaped and not known
	strangers int

	sweeping sync.Mutex
}

// worker is the guest's end of one supervisor.
type worker struct {
	channel
	pid  int
	gone chan struct{} // closed when the process was reaped
}

// order sends to a supervisor, which may have been stopped: then nobody waits for it.
func (w *worker) order(next order, files ...int) error {
	_ = w.conn.SetWriteDeadline(time.Now().Add(killPatience))
	return w.send(next, files...)
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
	if last := len(p.idle) - 1; last >= 0 {
		taken := p.idle[last]
		p.idle = p.idle[:last]
		_ = unix.Kill(taken.pid, unix.SIGCONT) // a tenant may have stopped it
		p.mu.Unlock()
		if last == 0 {
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
	keep := len(p.idle) < maxIdle && p.known[back.pid] == back // not one that was killed and reaped meanwhile
	if keep {
		p.idle = append(p.idle, back)
	}
	p.mu.Unlock()
	if !keep {
		back.conn.Close()
	}
}

func (p *Pool) warm() {
	if started, err := p.start(); err == nil {
		p.give(started)
	}
}

func (p *Pool) start() (*worker, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ends[1])
	ours := os.NewFile(uintptr(ends[0]), "supervisor")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	// The lock is held across the fork, so that the reaper cannot meet a child that it does not know yet.
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := startSelf(ends[1], p.arguments)
	if err != nil {
		conn.Close()
		return nil, err
	}
	started := &worker{channel{conn.(*net.UnixConn)}, pid, make(chan struct{})}
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

// kill ends a supervisor that does not obey, and everything that was beneath it.
func (p *Pool) kill(w *worker) {
	p.mu.Lock()
	if p.known[w.pid] == w { // not reaped yet, so the pid is still its own
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	<-w.gone
	w.conn.Close()
	p.sweepOrphans()
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
				w.conn.Close() // one that works for an exec is that exec's to close: how it ended is to be read there
				break
			}
		}
		close(ended.gone)
		// Whatever it supervised is ours now, and nobody else's.
		go p.sweepOrphans()
	}
	return true
}

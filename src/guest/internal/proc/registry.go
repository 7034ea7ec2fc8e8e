package proc

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/guest/internal/output"
	"holdfast/guest/internal/slots"
	"holdfast/guest/internal/wire"
)

const (
	maxRunning = 256
	// Ended execs that can still be read; the oldest goes first.
	maxEnded = 64
)

// Registry has the execs of a sandbox.
type Registry struct {
	config   wire.GuestConfig
	counters counters
	pool     *Pool
	idle     func()

	mu      sync.Mutex
	counter int
	running int
	execs   map[string]*Exec
	order   []string
}

// NewRegistry makes a registry; changed is called when an exec has ended.
func NewRegistry(config wire.GuestConfig, pool *Pool, changed func()) *Registry {
	return &Registry{config: config, counters: openCounters(config), pool: pool, idle: changed, execs: make(map[string]*Exec)}
}

// Start starts a program. When not even a process could be had, the exec is returned as ended.
func (r *Registry) Start(request wire.ExecRequest) (*Exec, error) {
	slots.Enter()
	work, err := prepare(request, r.config)
	slots.Leave()
	if err != nil {
		return nil, err
	}
	exec, err := r.add(request)
	if err != nil {
		return nil, err
	}
	if err := exec.start(work); errors.Is(err, errNoFork) {
		exec.cause = wire.EndCausePidsLimit
		exec.finish(nil, time.Since(exec.Started))
	} else if err != nil {
		close(exec.done)
		r.Forget(exec)
		r.left()
		return nil, err
	}
	if exec.Ended() != nil {
		r.left()
		return exec, nil
	}
	go func() {
		<-exec.Done()
		r.left()
	}()
	return exec, nil
}

func (r *Registry) add(request wire.ExecRequest) (*Exec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running >= maxRunning {
		return nil, wire.Fail(wire.ErrorCodeTooManyExecs, "%d execs are running in this sandbox; wait for one or kill it", r.running)
	}
	r.running++
	r.counter++
	exec := &Exec{
		ID:      fmt.Sprintf("x%d", r.counter),
		Command: describe(request),
		Log:     output.NewLog(request.StdoutCapBytes, request.StderrCapBytes),
		Started: time.Now(),
		done:    make(chan struct{}),
		request: request,
		pool:    r.pool,
		events:  events{counters: r.counters},
	}
	if request.Delivery == wire.DeliveryLive {
		exec.Log.Pace()
	}
	r.execs[exec.ID] = exec
	r.order = append(r.order, exec.ID)
	return exec, nil
}

// left counts an exec out and drops the oldest ended ones.
func (r *Registry) left() {
	r.mu.Lock()
	r.running--
	over := len(r.execs) - r.running - maxEnded
	kept := r.order[:0]
	for _, id := range r.order {
		exec := r.execs[id]
		if exec != nil && over > 0 && exec.Ended() != nil {
			delete(r.execs, id)
			over--
			exec = nil
		}
		if exec != nil {
			kept = append(kept, id)
		}
	}
	r.order = kept
	r.mu.Unlock()
	r.idle()
}

// Forget drops an exec whose result was delivered.
func (r *Registry) Forget(exec *Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.execs, exec.ID)
}

// Find gives an exec by its id.
func (r *Registry) Find(id string) (*Exec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if exec := r.execs[id]; exec != nil {
		return exec, nil
	}
	return nil, wire.Fail(wire.ErrorCodeExecNotFound, "there is no exec %q here; the last %d that ended are kept", id, maxEnded)
}

// Running counts the execs that have not ended.
func (r *Registry) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// StopAll kills every exec and returns when they have ended.
func (r *Registry) StopAll() {
	r.mu.Lock()
	running := []*Exec{}
	for _, exec := range r.execs {
		if exec.Ended() == nil {
			running = append(running, exec)
		}
	}
	r.mu.Unlock()
	for _, exec := range running {
		go exec.Stop(wire.EndCauseKilled)
	}
	for _, exec := range running {
		<-exec.Done()
	}
}

// List gives all execs, oldest first.
func (r *Registry) List() []wire.ExecInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := []wire.ExecInfo{}
	for _, id := range r.order {
		if exec := r.execs[id]; exec != nil {
			ended := exec.Ended()
			infos = append(infos, wire.ExecInfo{
				ExecID: id, Command: exec.Command, Running: ended == nil,
				StartedMSAgo: time.Since(exec.Started).Milliseconds(), Ended: ended,
			})
		}
	}
	return infos
}

func describe(request wire.ExecRequest) string {
	text := ""
	if request.Shell != nil {
		text = *request.Shell
	}
	for index, argument := range request.Argv {
		if index > 0 {
			text += " "
		}
		if text += argument; len(text) > 1000 {
			break
		}
	}
	runes := []rune(text)
	return string(runes[:min(len(runes), 200)])
}

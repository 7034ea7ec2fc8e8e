package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/output"
	"holdfast/guest/internal/wire"
)

const (
	// A program that takes longer has its output drained while it runs.
	startedAfter = time.Millisecond
	// How long the last output may take to arrive when all processes are dead: somebody else may hold the pipe.
	drainPatience = 100 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { return make([]byte, 64<<10) }}

// Exec is one program, running or ended.
type Exec struct {
	ID      string
	Command string
	Log     *output.Log
	Started time.Time
	done    chan struct{}
	request wire.ExecRequest

	pool   *Pool
	events events

	mu     sync.Mutex
	worker *worker  // nil: not yet, or no longer ours
	number int      // of the job, among those of its worker
	over   bool     // the last report is here
	stdin  *os.File // nil: none, or closed
	cause  wire.EndCause
	ended  *wire.ExecEnded
}

// Done is closed when the exec has ended and its output is complete.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Ended is nil while the exec runs.
func (e *Exec) Ended() *wire.ExecEnded {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// start hands the job to a supervisor and returns when the program runs, or has run.
func (e *Exec) start(work job) error {
	files, err := openPipes(e.request.Stdin)
	if err != nil {
		return wire.Fail(wire.ErrorCodeInternal, "no pipes for the program: %v", err)
	}
	e.stdin = files.stdin
	e.events.begin()
	var timer *time.Timer
	if e.request.TimeoutMS != nil {
		// From here on: a program can stop its supervisor before that has said a word.
		timer = time.AfterFunc(time.Duration(*e.request.TimeoutMS)*time.Millisecond, func() { e.Stop(wire.EndCauseTimeout) })
	}
	supervisor, first, err := e.hand(work, files)
	if err != nil && !errors.Is(err, errLost) {
		if timer != nil {
			timer.Stop()
		}
		files.closeTheirs()
		files.closeOurs()
		return err
	}
	if err == nil && first.Kind == reportEnded {
		e.endAtOnce(supervisor, first, files, timer)
		return nil
	}
	files.closeTheirs()
	var draining sync.WaitGroup
	var ours [2]*os.File
	for index, end := range files.ours {
		ours[index] = os.NewFile(uintptr(end), "pipe")
		draining.Add(1)
		go func() {
			defer draining.Done()
			e.drain(index, ours[index])
		}()
	}
	go e.follow(supervisor, first, err, ours, timer, &draining)
	return nil
}

// endAtOnce is the end of a short program: its first report is its last, and what it wrote is in the pipes.
func (e *Exec) endAtOnce(supervisor *worker, last report, files pipes, timer *time.Timer) {
	duration := e.leave(timer)
	e.pool.give(supervisor)
	buffer := buffers.Get().([]byte)
	for index, end := range files.ours {
		for until := time.Now().Add(drainPatience); time.Now().Before(until); {
			got, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(end), uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
			if errno != 0 || got == 0 {
				break
			}
			e.Log.Append(index, buffer[:got])
		}
	}
	buffers.Put(buffer)
	e.mu.Lock()
	e.stdin = nil
	e.mu.Unlock()
	go func() { // the answer first
		files.closeTheirs()
		files.closeOurs()
	}()
	e.finish(&last, duration)
}

// leave ends the time of an exec, and says how long it took.
func (e *Exec) leave(timer *time.Timer) time.Duration {
	if timer != nil {
		timer.Stop()
	}
	duration := time.Since(e.Started)
	e.mu.Lock()
	e.worker, e.over = nil, true
	e.mu.Unlock()
	return duration
}

func (e *Exec) drain(index int, pipe *os.File) {
	buffer := buffers.Get().([]byte)
	defer buffers.Put(buffer)
	for {
		got, err := pipe.Read(buffer[:min(int64(len(buffer)), e.Log.Room())])
		total := e.Log.Append(index, buffer[:got])
		if limit := e.request.OutputLimitBytes; limit != nil && total > *limit {
			e.Stop(wire.EndCauseOutputLimit)
		}
		if err != nil {
			return
		}
	}
}

// follow waits for the end: of the program, or of its time.
func (e *Exec) follow(supervisor *worker, last report, err error, pipes [2]*os.File, timer *time.Timer, draining *sync.WaitGroup) {
	if err == nil {
		last, err = supervisor.receive()
	}
	duration := e.leave(timer)
	end := &last
	if err != nil || last.Kind != reportEnded {
		e.pool.kill(supervisor)
		end = nil
	} else {
		e.pool.give(supervisor)
	}
	e.Log.Unpace()
	for _, pipe := range pipes {
		_ = pipe.SetReadDeadline(time.Now().Add(drainPatience))
	}
	draining.Wait()
	for _, pipe := range pipes {
		pipe.Close()
	}
	e.CloseStdin()
	e.finish(end, duration)
}

func (e *Exec) finish(end *report, duration time.Duration) {
	e.Log.Close()
	stdout, stderr := e.Log.Counts()
	ended := wire.ExecEnded{
		Type: wire.TypeExecEnded, ExecID: e.ID, DurationMS: float64(duration.Microseconds()) / 1000,
		Stdout: stdout, Stderr: stderr, Left: []wire.LeftProcess{},
	}
	failed := true
	if end != nil {
		ended.CPUMS = float64(end.CPUMicros) / 1000
		ended.PeakMemoryBytes = end.PeakBytes
		ended.Left, ended.LeftCount = append(ended.Left, end.Left...), end.LeftCount
		if end.Status.Signaled() {
			number := int64(end.Status.Signal())
			ended.Signal = &number
		} else {
			code := int64(end.Status.ExitStatus())
			ended.ExitCode = &code
			failed = code != 0
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ended.EndCause = e.events.judge(e.cause, failed, end == nil)
	e.ended = &ended
	close(e.done)
}

// Stop kills every process of the exec. The first cause counts.
func (e *Exec) Stop(cause wire.EndCause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != "" || e.over {
		return
	}
	if e.cause = cause; e.worker != nil {
		e.strike()
	}
}

func (e *Exec) stopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause != ""
}

// strike has the supervisor kill everything; one that does not obey, since its program stops it, dies with the rest.
// The caller holds the lock.
func (e *Exec) strike() {
	time.AfterFunc(killPatience, func() {
		e.mu.Lock()
		disobedient := e.worker
		e.mu.Unlock()
		if disobedient != nil {
			e.pool.kill(disobedient)
		}
	})
	e.pool.wake(e.worker)
	_ = e.worker.order(order{Number: e.number}) // it may not have been asked yet
	_ = e.worker.order(order{Number: e.number, Signal: int(unix.SIGKILL)})
}

// Signal delivers a signal other than SIGKILL to every process of the exec.
func (e *Exec) Signal(number syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worker != nil {
		_ = e.worker.order(order{Number: e.number, Signal: int(number)})
	}
}

// CopyStdin passes all that from has to the program. It returns when the last of it is in the pipe.
func (e *Exec) CopyStdin(ctx context.Context, from io.Reader) error {
	e.mu.Lock()
	pipe := e.stdin
	e.mu.Unlock()
	if pipe == nil {
		return wire.Fail(wire.ErrorCodeStdinClosed, "the stdin of %s is closed, or it was started without one", e.ID)
	}
	// A program that does not read blocks the write; the caller may give up on it.
	release := context.AfterFunc(ctx, func() { _ = pipe.SetWriteDeadline(time.Now()) })
	defer func() {
		if !release() {
			_ = pipe.SetWriteDeadline(time.Time{})
		}
	}()
	buffer := buffers.Get().([]byte)
	defer buffers.Put(buffer)
	for {
		got, err := from.Read(buffer)
		if _, failed := pipe.Write(buffer[:got]); failed != nil {
			return wire.Fail(wire.ErrorCodeStdinClosed, "%s closed its stdin", e.ID)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// CloseStdin lets the program read the end of its stdin.
func (e *Exec) CloseStdin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stdin != nil {
		e.stdin.Close()
		e.stdin = nil
	}
}

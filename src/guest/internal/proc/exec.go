package proc

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/output"
	"holdfast/guest/internal/wire"
)

// How long the last output may take to arrive when all processes are dead: somebody else may hold the pipe.
const drainPatience = 100 * time.Millisecond

var buffers = sync.Pool{New: func() any { return make([]byte, 64<<10) }}

// Exec is one program, running or ended.
type Exec struct {
	ID      string
	Command string
	number  int
	Log     *output.Log
	Started time.Time
	done    chan struct{}
	request wire.ExecRequest

	pool   *Pool
	events events

	mu     sync.Mutex
	worker *worker  // nil: not yet, or no longer ours
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

// pipes are the three files of a program: ours and its own ends.
type pipes struct {
	ours   [3]*os.File
	theirs [3]*os.File
}

func (p *pipes) close(files [3]*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}

func openPipes(stdin wire.StdinMode) (pipes, error) {
	var p pipes
	var err error
	if stdin == wire.StdinModePipe {
		p.theirs[0], p.ours[0], err = os.Pipe()
	} else {
		p.theirs[0], err = os.Open(os.DevNull)
	}
	for index := 1; index < 3 && err == nil; index++ {
		p.ours[index], p.theirs[index], err = os.Pipe()
	}
	if err != nil {
		p.close(p.ours)
		p.close(p.theirs)
	}
	return p, err
}

// start hands the job to a supervisor and returns when the program runs.
func (e *Exec) start(work job) error {
	files, err := openPipes(e.request.Stdin)
	if err != nil {
		return wire.Fail(wire.ErrorCodeInternal, "no pipes for the program: %v", err)
	}
	e.stdin = files.ours[0]
	e.events.begin()
	supervisor, first, err := e.hand(work, files)
	files.close(files.theirs)
	if err != nil || first.Failed != 0 {
		files.close(files.ours)
		if err == nil {
			err = startFailure(first.Failed, work)
		}
		return err
	}
	var draining sync.WaitGroup
	for index, file := range files.ours[1:] {
		draining.Add(1)
		go func() {
			defer draining.Done()
			e.drain(index, file)
		}()
	}
	e.mu.Lock()
	e.worker = supervisor
	e.mu.Unlock()
	go e.follow(supervisor, files, &draining)
	return nil
}

// hand gives the job to a supervisor; an idle one may have been killed by a tenant, so others get a try.
func (e *Exec) hand(work job, files pipes) (*worker, report, error) {
	var first report
	var err error
	for range 3 {
		supervisor, failed := e.pool.take()
		if failed != nil {
			return nil, first, startFailure(errnoOf(failed), work)
		}
		err = supervisor.send(order{Job: &work}, int(files.theirs[0].Fd()), int(files.theirs[1].Fd()), int(files.theirs[2].Fd()))
		if err == nil {
			_, err = supervisor.receive(&first)
		}
		if err == nil {
			if !first.Started {
				e.pool.give(supervisor)
			}
			if first.Refused != "" {
				err = wire.Fail(wire.ErrorCodeLimitsNotAvailable, "the limits of this sandbox cannot be put on a program, so none is started: %s", first.Refused)
			}
			return supervisor, first, err
		}
		e.pool.kill(supervisor)
	}
	return nil, first, wire.Fail(wire.ErrorCodeInternal, "the supervisor of the program did not start: %v", err)
}

func (e *Exec) drain(index int, pipe *os.File) {
	buffer := buffers.Get().([]byte)
	defer buffers.Put(buffer)
	for {
		got, err := pipe.Read(buffer)
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
func (e *Exec) follow(supervisor *worker, files pipes, draining *sync.WaitGroup) {
	var timer *time.Timer
	if e.request.TimeoutMS != nil {
		timer = time.AfterFunc(time.Duration(*e.request.TimeoutMS)*time.Millisecond, func() { e.Stop(wire.EndCauseTimeout) })
	}
	var last report
	_, err := supervisor.receive(&last)
	if timer != nil {
		timer.Stop()
	}
	duration := time.Since(e.Started)
	e.mu.Lock()
	e.worker = nil
	e.mu.Unlock()
	if err != nil || last.Ended == nil {
		e.pool.kill(supervisor)
		last.Ended = nil
	} else {
		e.pool.give(supervisor)
	}
	for _, pipe := range files.ours[1:] {
		_ = pipe.SetReadDeadline(time.Now().Add(drainPatience))
	}
	draining.Wait()
	e.mu.Lock()
	files.close(files.ours)
	e.stdin = nil
	e.mu.Unlock()
	e.finish(last.Ended, duration)
}

func (e *Exec) finish(end *ending, duration time.Duration) {
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
		ended.Left, ended.LeftCount = end.Left, end.LeftCount
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
	if e.cause != "" || e.worker == nil {
		return
	}
	e.cause = cause
	_ = e.worker.send(order{Signal: int(unix.SIGKILL), Number: e.number})
	time.AfterFunc(killPatience, func() {
		e.mu.Lock()
		disobedient := e.worker // it was stopped, or worse, by what it supervises
		e.mu.Unlock()
		if disobedient != nil {
			e.pool.kill(disobedient)
		}
	})
}

// Signal delivers a signal other than SIGKILL to every process of the exec.
func (e *Exec) Signal(number syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worker != nil {
		_ = e.worker.send(order{Signal: int(number), Number: e.number})
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

package proc

import (
	"context"
	"errors"
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

	mu        sync.Mutex
	worker    *worker  // nil: not yet, or no longer ours
	disturbed bool     // the supervisor was sent more than the job
	over      bool     // the last report is here
	stdin     *os.File // nil: none, or closed
	cause     wire.EndCause
	ended     *wire.ExecEnded
}

// Done is closed when the exec has ended and its output is complete.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Ended is nil while the exec runs.
func (e *Exec) Ended() *wire.ExecEnded {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// pipes are the files of a program: our ends, and its own as plain descriptors, since it wants them blocking.
type pipes struct {
	stdin, stdout, stderr *os.File
	theirs                [3]int
}

// devNull is the stdin of all programs that have none.
var devNull = sync.OnceValues(func() (int, error) {
	return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

func openPipes(stdin wire.StdinMode) (p pipes, err error) {
	p.theirs = [3]int{-1, -1, -1}
	if stdin == wire.StdinModePipe {
		p.theirs[0], p.stdin, err = pipe(0)
	} else {
		p.theirs[0], err = devNull()
	}
	if err == nil {
		p.theirs[1], p.stdout, err = pipe(1)
	}
	if err == nil {
		p.theirs[2], p.stderr, err = pipe(1)
	}
	if err != nil {
		p.closeTheirs()
		p.closeOurs()
	}
	return p, err
}

// pipe gives the program's end (0 to read, 1 to write) and ours.
func pipe(theirs int) (int, *os.File, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	ours := ends[1-theirs]
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return -1, nil, err
	}
	return ends[theirs], os.NewFile(uintptr(ours), "pipe"), nil
}

func (p *pipes) closeTheirs() {
	shared, _ := devNull()
	for _, end := range p.theirs {
		if end >= 0 && end != shared {
			unix.Close(end)
		}
	}
}

func (p *pipes) closeOurs() {
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if file != nil {
			file.Close()
		}
	}
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
	files.closeTheirs()
	if err == nil && first.Failed != 0 {
		err = startFailure(first.Failed, work)
	}
	if err != nil && !errors.Is(err, errLost) {
		if timer != nil {
			timer.Stop()
		}
		files.closeOurs()
		return err
	}
	var draining sync.WaitGroup
	for index, file := range []*os.File{files.stdout, files.stderr} {
		draining.Add(1)
		go func() {
			defer draining.Done()
			e.drain(index, file)
		}()
	}
	go e.follow(supervisor, first, err, files, timer, &draining)
	return nil
}

// errLost: the supervisor took the job and died before it said a word.
var errLost = errors.New("the supervisor is gone")

// hand gives the job to a supervisor and waits for its first word. An idle one may have been killed by a tenant, so
// others get a try; but a job that may have been taken is never handed out again, since its program may have run.
func (e *Exec) hand(work job, files pipes) (*worker, report, error) {
	for range 3 {
		var first report
		supervisor, err := e.pool.take()
		if err != nil {
			return nil, first, startFailure(errnoOf(err), work)
		}
		if supervisor.order(order{Job: &work}, files.theirs[:]...) == nil {
			e.setWorker(supervisor)
			_, err = supervisor.receive(&first)
			switch {
			case err == nil && first.Failed == 0 && first.Refused == "":
				return supervisor, first, nil
			case err == nil:
				e.setWorker(nil)
				e.pool.give(supervisor)
				if first.Refused != "" {
					err = wire.Fail(wire.ErrorCodeLimitsNotAvailable,
						"the limits of this sandbox cannot be put on a program, so none is started: %s", first.Refused)
				}
				return nil, first, err
			case !errors.Is(err, unix.ECONNRESET) || e.setWorker(nil):
				// Only that error says that it died with our order unread, unless there were others after it.
				return supervisor, first, errLost
			}
		}
		e.pool.kill(supervisor)
	}
	if e.events.forkRefused() { // to the supervisor itself, which needs threads
		return nil, report{}, errNoFork
	}
	return nil, report{}, wire.Fail(wire.ErrorCodeInternal, "the supervisor of the program did not start; try again")
}

// setWorker says who the exec's supervisor is, and tells whether it was sent an order after the job. A stop that came
// while there was none is made up for.
func (e *Exec) setWorker(supervisor *worker) (disturbed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	disturbed = e.disturbed
	if e.worker = supervisor; supervisor != nil && e.cause != "" {
		e.strike()
	}
	return disturbed
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

// follow waits for the end: of the program, or of its time. A short program's first report is its last.
func (e *Exec) follow(supervisor *worker, last report, err error, files pipes, timer *time.Timer, draining *sync.WaitGroup) {
	if err == nil && last.Ended == nil {
		_, err = supervisor.receive(&last)
	}
	if timer != nil {
		timer.Stop()
	}
	duration := time.Since(e.Started)
	e.mu.Lock()
	e.worker, e.over = nil, true
	e.mu.Unlock()
	if err != nil || last.Ended == nil {
		e.pool.kill(supervisor)
		last.Ended = nil
	} else {
		e.pool.give(supervisor)
	}
	e.Log.Unpace()
	for _, pipe := range []*os.File{files.stdout, files.stderr} {
		_ = pipe.SetReadDeadline(time.Now().Add(drainPatience))
	}
	draining.Wait()
	e.mu.Lock()
	files.closeOurs()
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
	if e.cause != "" || e.over {
		return
	}
	if e.cause = cause; e.worker != nil {
		e.strike()
	}
}

// strike has the supervisor kill everything; one that does not obey, since its program stops it, dies with the rest.
// The caller holds the lock.
func (e *Exec) strike() {
	e.disturbed = true
	time.AfterFunc(killPatience, func() {
		e.mu.Lock()
		disobedient := e.worker
		e.mu.Unlock()
		if disobedient != nil {
			e.pool.kill(disobedient)
		}
	})
	e.pool.wake(e.worker)
	_ = e.worker.order(order{Signal: int(unix.SIGKILL), Number: e.number})
}

// Signal delivers a signal other than SIGKILL to every process of the exec.
func (e *Exec) Signal(number syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worker != nil {
		e.disturbed = true
		_ = e.worker.order(order{Signal: int(number), Number: e.number})
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

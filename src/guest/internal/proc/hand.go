package proc

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// errLost: the supervisor died before it said a word, and the job was taken, or is wanted no longer.
var errLost = errors.New("the supervisor is gone")

// hand gives the job to a supervisor and waits for its first word. An idle one may have been killed by a tenant, so
// others get a try; but a job that may have been taken is never handed out again, since its program may have run.
func (e *Exec) hand(work job, files pipes) (*worker, report, error) {
	for range 3 {
		supervisor, err := e.pool.take()
		if err != nil {
			return nil, report{}, startFailure(errnoOf(err), work)
		}
		work.Number = e.setWorker(supervisor)
		first, sent, err := e.offer(supervisor, work, files)
		if err == nil && (first.Kind == reportStarted || first.Kind == reportEnded) {
			return supervisor, first, nil
		}
		e.setWorker(nil)
		switch {
		case err == nil && first.Kind == reportFailed:
			e.pool.give(supervisor)
			return nil, first, startFailure(first.Failed, work)
		case err == nil:
			e.pool.kill(supervisor)
			return nil, first, wire.Fail(wire.ErrorCodeLimitsNotAvailable,
				"the limits of this sandbox cannot be put on a program, so none is started: %s", first.Refused)
		case errors.Is(err, errTooLong):
			e.pool.give(supervisor)
			return nil, first, startFailure(syscall.E2BIG, work)
		}
		if untaken := e.pool.kill(supervisor); sent && !untaken || e.stopped() {
			return supervisor, first, errLost
		}
	}
	if e.events.forkRefused() { // to the supervisor itself, which needs threads
		return nil, report{}, errNoFork
	}
	return nil, report{}, wire.Fail(wire.ErrorCodeInternal, "the supervisor of the program did not start; try again")
}

var errTooLong = errors.New("the job is too long")

// offer sends a job to a supervisor's parked child. Who wants to know that it has started asks at once, the others when
// it takes a while: a program that ends before needs no word in between.
func (e *Exec) offer(supervisor *worker, work job, files pipes) (first report, sent bool, err error) {
	patience := startedAfter
	if e.request.Stdin == wire.StdinModePipe || e.request.Delivery != wire.DeliveryResult {
		patience = 0
	}
	watch := time.AfterFunc(patience, func() {
		e.pool.wake(supervisor) // a tenant may have stopped it
		_ = supervisor.order(order{Number: work.Number})
	})
	defer watch.Stop()
	if supervisor.room == (room{}) {
		if first, err = supervisor.receive(); err != nil || first.Kind != reportReady {
			return first, false, err
		}
		supervisor.room = first.Room
	}
	packet, large := work.packet(supervisor.room)
	theirs := files.theirs[:]
	if large != nil {
		contents, err := file(large)
		if err != nil {
			return first, false, err
		}
		defer unix.Close(contents)
		theirs = append(theirs, contents)
	}
	if err := sendJob(supervisor.jobs, packet, theirs...); err != nil {
		return first, false, err
	}
	first, err = supervisor.receive()
	return first, true, err
}

// file holds what is too long for a packet.
func file(contents []byte) (int, error) {
	if len(contents) > maxLargeJob {
		return -1, errTooLong
	}
	made, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	for err == nil && len(contents) > 0 {
		var wrote int
		wrote, err = unix.Write(made, contents)
		contents = contents[max(0, wrote):]
	}
	if err != nil {
		unix.Close(made)
		return -1, err
	}
	return made, nil
}

// setWorker says who the exec's supervisor is, and gives the number that the job has there. A stop that came while there
// was none is made up for.
func (e *Exec) setWorker(supervisor *worker) (number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worker = supervisor; supervisor != nil {
		supervisor.sent++
		e.number = supervisor.sent
		if e.cause != "" {
			e.strike()
		}
	}
	return e.number
}

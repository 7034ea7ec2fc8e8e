package proc

import (
	"encoding/json"
	"syscall"
	"unsafe"

	"holdfast/guest/internal/wire"
)

// order is what the guest tells a supervisor of the job that it sent to its parked child.
type order struct {
	// Number of the job: it may have ended while the order was on its way, and the supervisor may have another by now.
	Number int
	// Signal to send. 0: say when the program has started; this comes before any signal, which then cannot be ahead of
	// the job.
	Signal int
}

// report is what a supervisor tells the guest: once that it is ready, or why it is not; then of each job that it has
// failed, or has ended; and before, that it has started, if that was asked.
type report struct {
	reportHead
	reportRest
}

type reportHead struct {
	Kind      reportKind
	Room      room
	Failed    syscall.Errno
	Status    syscall.WaitStatus
	CPUMicros int64
	PeakBytes int64
	LeftCount int64
	rest      int // bytes of JSON that follow
}

// reportRest is what few reports have.
type reportRest struct {
	Refused string             `json:",omitempty"`
	Left    []wire.LeftProcess `json:",omitempty"`
}

type reportKind int

const (
	reportReady reportKind = iota
	reportRefused
	reportStarted
	reportFailed
	reportEnded
)

// sendReport writes to a pipe that the guest reads.
func sendReport(to pipeEnd, r report) error {
	var rest []byte
	if r.Refused != "" || len(r.Left) > 0 {
		rest, _ = json.Marshal(r.reportRest)
	}
	r.rest = len(rest)
	return to.write(append(append([]byte(nil), raw(&r.reportHead)...), rest...))
}

func receiveReport(from pipeEnd) (r report, err error) {
	if err = from.readAll(raw(&r.reportHead)); err != nil || r.rest == 0 {
		return r, err
	}
	rest := make([]byte, min(r.rest, maxRestBytes))
	if err = from.readAll(rest); err != nil {
		return r, err
	}
	return r, json.Unmarshal(rest, &r.reportRest)
}

const maxRestBytes = 32 << 10

// raw is a value as it lies in memory: both ends are the same program.
func raw[T any](value *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(value)), unsafe.Sizeof(*value))
}

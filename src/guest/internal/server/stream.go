package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"holdfast/guest/internal/slots"
	"holdfast/guest/internal/wire"
)

var errAborted = errors.New("the caller has gone")

// stream is one call: an io.Reader of what the host sends, and a writer that waits for the host's credit.
type stream struct {
	id     uint32
	conn   *conn
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	changed  *sync.Cond
	works    bool     // on files, in a slot: it is left while the host is waited for
	pending  [][]byte // received, not yet read
	held     int64    // bytes of it
	consumed int64    // read since the host was last given credit
	ended    bool     // the host sent END
	aborted  bool     // RESET, or the connection is lost
	credit   int64    // bytes that we may still send
}

func newStream(ctx context.Context, c *conn, id uint32) *stream {
	s := &stream{id: id, conn: c, credit: c.window}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.changed = sync.NewCond(&s.mu)
	return s
}

// receive takes DATA of the host. More than its credit is a broken host; in a replay there is no credit, and we wait.
func (s *stream) receive(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.conn.replay && s.held >= wire.WindowBytes && !s.aborted {
		s.changed.Wait()
	}
	if s.ended || s.aborted {
		return nil
	}
	if !s.conn.replay && s.held+s.consumed+int64(len(data)) > wire.WindowBytes {
		return errors.New("the host sent more than its credit")
	}
	s.pending = append(s.pending, data)
	s.held += int64(len(data))
	s.changed.Broadcast()
	return nil
}

func (s *stream) endInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

func (s *stream) grant(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit += bytes
	s.changed.Broadcast()
}

// abort wakes whoever reads or writes.
func (s *stream) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	s.changed.Broadcast()
}

// outside leaves the call's slot, if it has one, and returns what enters it again.
func (s *stream) outside() func() {
	if !s.works {
		return func() {}
	}
	slots.Leave()
	return slots.Enter
}

// Read gives the host's DATA, io.EOF after its END, and an error if the call was given up.
func (s *stream) Read(into []byte) (int, error) {
	defer s.outside()()
	s.mu.Lock()
	for len(s.pending) == 0 && !s.ended && !s.aborted {
		s.changed.Wait()
	}
	if s.aborted || len(s.pending) == 0 {
		defer s.mu.Unlock()
		if s.aborted {
			return 0, errAborted
		}
		return 0, io.EOF
	}
	got := copy(into, s.pending[0])
	if s.pending[0] = s.pending[0][got:]; len(s.pending[0]) == 0 {
		s.pending = s.pending[1:]
	}
	s.held -= int64(got)
	s.consumed += int64(got)
	give := int64(0)
	if s.conn.replay {
		s.changed.Broadcast()
	} else if s.consumed >= wire.WindowBytes/4 && !s.ended {
		give, s.consumed = s.consumed, 0
	}
	s.mu.Unlock()
	if give > 0 {
		_ = s.conn.send(wire.Frame{Stream: s.id, Kind: wire.KindWindow, Payload: binary.BigEndian.AppendUint32(nil, uint32(give))})
	}
	return got, nil
}

// pay waits until the host has given credit and takes up to size bytes of it: all of them for a whole frame, which may
// be more than there is. It returns the size that may be sent.
func (s *stream) pay(size int64, whole bool) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit <= 0 && !s.aborted {
		s.changed.Wait()
	}
	if s.aborted {
		return 0, errAborted
	}
	if !whole {
		size = min(size, s.credit, wire.MaxDataBytes)
	}
	s.credit -= max(size, wire.FrameCost)
	return size, nil
}

// send writes DATA, in frames, as far as the host's credit goes; it waits for more.
func (s *stream) send(kind wire.Kind, data []byte) error {
	defer s.outside()()
	for len(data) > 0 {
		size, err := s.pay(int64(len(data)), false)
		if err != nil {
			return err
		}
		if err := s.conn.send(wire.Frame{Stream: s.id, Kind: kind, Payload: data[:size]}); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

// joiner sends pieces, which may be small and many, in frames that are neither.
type joiner struct {
	call  *stream
	kind  wire.Kind
	frame []byte
}

func (j *joiner) add(piece []byte) error {
	if len(j.frame)+len(piece) > wire.MaxDataBytes {
		if err := j.flush(); err != nil {
			return err
		}
	}
	j.frame = append(j.frame, piece...)
	return nil
}

func (j *joiner) flush() error {
	defer func() { j.frame = j.frame[:0] }()
	return j.call.send(j.kind, j.frame)
}

// Write sends file contents.
func (s *stream) Write(data []byte) (int, error) {
	if err := s.send(wire.KindData, data); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (s *stream) event(message any) error {
	defer s.outside()()
	frame, err := wire.Message(s.id, wire.KindEvent, message)
	if err != nil {
		return err
	}
	if _, err := s.pay(int64(len(frame.Payload)), true); err != nil {
		return err
	}
	return s.conn.send(frame)
}

var _ io.ReadWriter = (*stream)(nil)

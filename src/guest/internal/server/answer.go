package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/output"
	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/slots"
	"holdfast/guest/internal/wire"
)

const maxReadBytes = 16 << 20

// answer does what one request asks for and returns the one reply that closes its stream.
func (s *Server) answer(call *stream, payload []byte) any {
	var head struct{ Op string }
	if err := json.Unmarshal(payload, &head); err != nil {
		return failure(wire.Fail(wire.ErrorCodeInvalidRequest, "the request is not JSON: %v", err))
	}
	handle, known := handlers[head.Op]
	if !known {
		return failure(wire.Fail(wire.ErrorCodeInvalidRequest, "this guest does not know the request %q", head.Op))
	}
	if head.Op != wire.OpStatus && head.Op != wire.OpExecList { // whoever only looks does not keep a session alive
		s.touch()
		s.calls.Add(1)
		defer func() {
			s.touch()
			s.calls.Add(-1)
		}()
	}
	if strings.HasPrefix(head.Op, "file_") || head.Op == wire.OpStatus {
		call.works = true
		slots.Enter()
		defer slots.Leave()
	}
	reply, err := handle(s, call, payload)
	switch {
	case errors.Is(err, errAborted): // the caller waits for this one, to know that nothing is going on any more
		return wire.Done{Type: wire.TypeDone}
	case err != nil:
		return failure(err)
	}
	return reply
}

type handler func(s *Server, call *stream, payload []byte) (any, error)

// typed makes a handler of a function that takes one kind of request.
func typed[T any](handle func(*Server, *stream, T) (any, error)) handler {
	return func(s *Server, call *stream, payload []byte) (any, error) {
		var request T
		if err := json.Unmarshal(payload, &request); err != nil {
			return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "the request does not fit: %v", err)
		}
		return handle(s, call, request)
	}
}

var handlers map[string]handler

func init() {
	handlers = map[string]handler{
		wire.OpExecRequest: typed((*Server).exec),
		wire.OpExecRead:    typed((*Server).execRead),
		wire.OpExecWait:    typed((*Server).execWait),
		wire.OpExecKill:    typed((*Server).execKill),
		wire.OpExecStdin:   typed((*Server).execStdin),
		wire.OpExecList:    typed((*Server).execList),
		wire.OpFileWrite:   typed((*Server).fileWrite),
		wire.OpFileRead:    typed((*Server).fileRead),
		wire.OpFileList:    typed((*Server).fileList),
		wire.OpFileStat:    typed((*Server).fileStat),
		wire.OpFileDelete:  typed((*Server).fileDelete),
		wire.OpFileMkdir:   typed((*Server).fileMkdir),
		wire.OpFileMove:    typed((*Server).fileMove),
		wire.OpRunRequest:  typed((*Server).run),
		wire.OpStatus:      typed(func(s *Server, _ *stream, _ wire.Status) (any, error) { return s.status() }),
		wire.OpShutdown: typed(func(s *Server, _ *stream, _ wire.Shutdown) (any, error) {
			s.clock.stop()
			return wire.Done{Type: wire.TypeDone}, nil
		}),
		wire.OpRetire: typed((*Server).retire),
	}
}

func (s *Server) retire(_ *stream, request wire.Retire) (any, error) {
	if request.KeepMS < 0 {
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "keep_ms must be at least 0")
	}
	s.execs.StopAll()
	s.clock.retire(time.Duration(request.KeepMS) * time.Millisecond)
	return wire.Done{Type: wire.TypeDone}, nil
}

func failure(err error) *wire.Failure {
	var known *wire.Failure
	if errors.As(err, &known) {
		return known
	}
	return &wire.Failure{Type: wire.TypeFailure, Code: wire.ErrorCodeInternal, Message: err.Error()}
}

func (s *Server) exec(call *stream, request wire.ExecRequest) (any, error) {
	exec, err := s.execs.Start(request)
	if err != nil {
		return nil, err
	}
	if request.Delivery == wire.DeliveryDetached {
		return wire.ExecStarted{Type: wire.TypeExecStarted, ExecID: exec.ID}, nil
	}
	return s.attend(call, request, exec)
}

// attend feeds an exec, sends its output and gives its end. The caller's going is the exec's end.
func (s *Server) attend(call *stream, request wire.ExecRequest, exec *proc.Exec) (*wire.ExecEnded, error) {
	if exec.Ended() == nil {
		defer context.AfterFunc(call.ctx, func() { exec.Stop(wire.EndCauseCancelled) })()
	}
	if request.Stdin == wire.StdinModePipe {
		go func() { // a program that does not read its stdin is no error
			_ = exec.CopyStdin(call.ctx, call)
			exec.CloseStdin()
		}()
	}
	var err error
	if request.Delivery == wire.DeliveryLive {
		err = live(call, exec)
	} else {
		err = result(call, exec)
	}
	<-exec.Done()
	if err != nil {
		return nil, err
	}
	s.execs.Forget(exec)
	return exec.Ended(), nil
}

// result sends all that was kept, when the exec has ended.
func result(call *stream, exec *proc.Exec) error {
	select {
	case <-exec.Done():
	case <-call.ctx.Done():
		return errAborted
	}
	for index, kind := range []wire.Kind{wire.KindData, wire.KindDataErr} {
		pieces := joiner{call: call, kind: kind}
		if err := exec.Log.Kept(index, pieces.add); err != nil {
			return err
		}
		if err := pieces.flush(); err != nil {
			return err
		}
	}
	return nil
}

// live sends output as it comes. The program waits for a slow caller, as it would for a slow terminal, but only as long
// as it lives: what it wrote at its end may have to be dropped, and the caller is told how much.
func live(call *stream, exec *proc.Exec) error {
	defer exec.Log.Unpace()
	if err := call.event(wire.ExecStarted{Type: wire.TypeExecStarted, ExecID: exec.ID}); err != nil {
		return err
	}
	since := int64(0)
	for {
		batch, changed := exec.Log.Read(since, wire.MaxDataBytes)
		since = batch.Next
		if batch.Expired > 0 {
			if err := call.event(wire.OutputExpired{Type: wire.TypeOutputExpired, ExpiredBytes: batch.Expired}); err != nil {
				return err
			}
		}
		for _, chunk := range batch.Chunks {
			kind := wire.KindData
			if chunk.Stream == output.Stderr {
				kind = wire.KindDataErr
			}
			if err := call.send(kind, chunk.Data); err != nil {
				return err
			}
			exec.Log.Reached(chunk.Position + int64(len(chunk.Data)))
		}
		exec.Log.Reached(since) // also where nothing of it was kept
		if batch.Closed {
			return nil
		}
		if len(batch.Chunks) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-call.ctx.Done():
			return errAborted
		}
	}
}

func (s *Server) execRead(call *stream, request wire.ExecRead) (any, error) {
	exec, err := s.execs.Find(request.ExecID)
	if err != nil {
		return nil, err
	}
	if request.Since < 0 || request.MaxBytes < 1 {
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "since must be at least 0 and max_bytes at least 1")
	}
	patience := time.After(time.Duration(request.WaitMS) * time.Millisecond)
	for {
		batch, changed := exec.Log.Read(request.Since, min(request.MaxBytes, maxReadBytes))
		if len(batch.Chunks) == 0 && batch.Expired == 0 && !batch.Closed && request.WaitMS > 0 {
			select {
			case <-changed:
				continue
			case <-patience:
			case <-call.ctx.Done():
				return nil, errAborted
			}
		}
		pieces := joiner{call: call, kind: wire.KindData}
		for _, chunk := range batch.Chunks {
			if err := pieces.add(chunk.Data); err != nil {
				return nil, err
			}
		}
		if err := pieces.flush(); err != nil {
			return nil, err
		}
		reply := wire.ExecOutput{
			Type: wire.TypeExecOutput, Segments: batch.Segments(), NextPosition: batch.Next, ExpiredBytes: batch.Expired,
		}
		if batch.Closed {
			<-exec.Done() // the log closes a moment before
			reply.Ended = exec.Ended()
		}
		return reply, nil
	}
}

func (s *Server) execWait(call *stream, request wire.ExecWait) (any, error) {
	exec, err := s.execs.Find(request.ExecID)
	if err != nil {
		return nil, err
	}
	var patience <-chan time.Time
	if request.TimeoutMS != nil {
		patience = time.After(time.Duration(*request.TimeoutMS) * time.Millisecond)
	}
	select {
	case <-exec.Done():
	case <-patience:
	case <-call.ctx.Done():
		return nil, errAborted
	}
	return wire.ExecWaited{Type: wire.TypeExecWaited, Ended: exec.Ended()}, nil
}

func (s *Server) execKill(call *stream, request wire.ExecKill) (any, error) {
	exec, err := s.execs.Find(request.ExecID)
	if err != nil {
		return nil, err
	}
	switch {
	case request.Signal == int64(unix.SIGKILL):
		exec.Stop(wire.EndCauseKilled)
		select {
		case <-exec.Done():
		case <-call.ctx.Done():
			return nil, errAborted
		}
	case request.Signal > 0 && request.Signal < 65:
		exec.Signal(syscall.Signal(request.Signal))
	default:
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "%d is not a signal", request.Signal)
	}
	return wire.Done{Type: wire.TypeDone}, nil
}

func (s *Server) execStdin(call *stream, request wire.ExecStdin) (any, error) {
	exec, err := s.execs.Find(request.ExecID)
	if err != nil {
		return nil, err
	}
	if err := exec.CopyStdin(call.ctx, call); err != nil {
		return nil, err
	}
	if request.Close {
		exec.CloseStdin()
	}
	return wire.Done{Type: wire.TypeDone}, nil
}

func (s *Server) execList(*stream, wire.ExecList) (any, error) {
	return wire.ExecListing{Type: wire.TypeExecListing, Execs: s.execs.List()}, nil
}

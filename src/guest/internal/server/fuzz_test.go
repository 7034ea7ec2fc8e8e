package server

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"holdfast/guest/internal/wire"
)

// FuzzConn feeds arbitrary bytes to a connection, after a hello: it ends, and the guest goes on. No program is started:
// the fuzzer would choose which.
func FuzzConn(f *testing.F) {
	start := handlers[wire.OpExecRequest]
	handlers[wire.OpExecRequest] = func(*Server, *stream, []byte) (any, error) { return nil, errAborted }
	f.Cleanup(func() { handlers[wire.OpExecRequest] = start })
	message := func(stream uint32, value any) []byte {
		frame, err := wire.Message(stream, wire.KindMessage, value)
		if err != nil {
			f.Fatal(err)
		}
		return wire.AppendFrame(nil, frame)
	}
	frame := func(stream uint32, kind wire.Kind, payload string) []byte {
		return wire.AppendFrame(nil, wire.Frame{Stream: stream, Kind: kind, Payload: []byte(payload)})
	}
	f.Add(true, []byte{})
	f.Add(false, message(0, wire.HostHello{Protocol: 1, Window: 1, OnEof: wire.OnEofFinish}))
	f.Add(true, message(1, wire.Status{Op: wire.OpStatus}))
	f.Add(true, message(1, wire.ExecRequest{Op: wire.OpExecRequest}))
	f.Add(true, append(message(1, wire.FileWrite{Op: wire.OpFileWrite, Path: "f"}), frame(1, wire.KindData, "x")...))
	f.Add(true, append(message(7, wire.FileList{Op: wire.OpFileList, Path: ".", MaxEntries: 9}), frame(7, wire.KindReset, "")...))
	f.Add(true, append(message(2, wire.FileRead{Op: wire.OpFileRead, Path: "f"}), frame(2, wire.KindWindow, "\xff\xff\xff\xff")...))
	f.Add(true, message(3, wire.ExecRead{Op: wire.OpExecRead, ExecID: "x1", MaxBytes: -1}))
	f.Add(true, message(3, wire.ExecKill{Op: wire.OpExecKill, ExecID: "x1", Signal: 99}))
	f.Add(true, message(3, wire.FileDelete{Op: wire.OpFileDelete, Path: ".", Recursive: true}))
	f.Add(true, message(3, wire.FileMove{Op: wire.OpFileMove, Source: "a", Destination: "../b"}))
	hello := message(0, wire.HostHello{Protocol: wire.Protocol, Window: 1 << 20, OnEof: wire.OnEofCancel})
	guest := shared()
	f.Fuzz(func(t *testing.T, greet bool, raw []byte) {
		if bytes.Contains(raw, []byte(wire.OpShutdown)) {
			return
		}
		var input io.Reader = bytes.NewReader(raw)
		if greet {
			input = io.MultiReader(bytes.NewReader(hello), input)
		}
		done := make(chan struct{})
		go func() {
			_ = newConn(guest, input, io.Discard, nil).serve(context.Background())
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection does not end")
		}
	})
}

package server

import (
	"testing"

	"holdfast/guest/internal/wire"
)

// One program through a server, from the request's frame to the result's: all that the guest does for an exec.
func BenchmarkExecTrue(b *testing.B) {
	h := greeted(b, wire.OnEofCancel, wire.WindowBytes)
	timeout := int64(30_000)
	request := wire.ExecRequest{
		Op: wire.OpExecRequest, Argv: []string{"/usr/bin/true"}, Env: map[string]string{}, Stdin: wire.StdinModeNone,
		TimeoutMS: &timeout, StdoutCapBytes: 1 << 20, StderrCapBytes: 1 << 16, Background: wire.BackgroundKill,
		Delivery: wire.DeliveryResult,
	}
	stream := uint32(1)
	b.ReportAllocs()
	for b.Loop() {
		var ended wire.ExecEnded
		h.say(stream, request)
		h.answer(stream, &ended)
		if ended.ExitCode == nil || *ended.ExitCode != 0 {
			b.Fatalf("%+v", ended)
		}
		stream += 2
	}
}

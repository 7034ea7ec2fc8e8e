package wire

import (
	"bytes"
	"testing"
)

// A small message and the largest frame of data, there and back: what each call and each megabyte passes through.
func BenchmarkFrames(b *testing.B) {
	for _, payload := range []struct {
		name string
		size int
	}{{"200B", 200}, {"64KiB", 64 << 10}} {
		b.Run(payload.name, func(b *testing.B) {
			frame := Frame{Stream: 7, Kind: KindData, Payload: make([]byte, payload.size)}
			var stream []byte
			reader := bytes.NewReader(nil)
			b.SetBytes(int64(payload.size))
			b.ReportAllocs()
			for b.Loop() {
				stream = AppendFrame(stream[:0], frame)
				reader.Reset(stream)
				if got, err := ReadFrame(reader); err != nil || len(got.Payload) != payload.size {
					b.Fatal(err)
				}
			}
		})
	}
}

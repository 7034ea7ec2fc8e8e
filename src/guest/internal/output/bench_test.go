package output

import "testing"

// What a program that floods its output costs the guest, once the log is full: the usual case of a large output.
func BenchmarkAppendToAFullLog(b *testing.B) {
	for _, piece := range []struct {
		name string
		size int
	}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}} {
		b.Run(piece.name, func(b *testing.B) {
			log := NewLog(1<<20, 1<<20)
			data := make([]byte, piece.size)
			for range 3 << 20 / piece.size {
				log.Append(Stdout, data)
			}
			b.SetBytes(int64(piece.size))
			b.ReportAllocs()
			for b.Loop() {
				log.Append(Stdout, data)
			}
		})
	}
}

func BenchmarkReadFromALog(b *testing.B) {
	log := NewLog(1<<20, 1<<20)
	for range 16 {
		log.Append(Stdout, make([]byte, 64<<10))
	}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := log.Kept(Stdout, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

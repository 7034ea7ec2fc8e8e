package output

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// model is the log without bounds: every byte with its stream, in order.
type model struct {
	streams []byte
	data    []byte
}

func (m *model) append(stream int, data []byte) {
	m.data = append(m.data, data...)
	m.streams = append(m.streams, bytes.Repeat([]byte{byte(stream)}, len(data))...)
}

func (m *model) of(stream int) []byte {
	var out []byte
	for at, kind := range m.streams {
		if int(kind) == stream {
			out = append(out, m.data[at])
		}
	}
	return out
}

func kept(t *testing.T, log *Log, stream int) []byte {
	t.Helper()
	var out []byte
	if err := log.Kept(stream, func(piece []byte) error { out = append(out, piece...); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// check compares the log with the model: counts, first and last bytes, and a walk by position.
func check(t *testing.T, log *Log, m *model, max int64) {
	t.Helper()
	stdout, stderr := log.Counts()
	for stream, count := range []struct{ total, head, tail int64 }{
		{stdout.TotalBytes, stdout.HeadBytes, stdout.TailBytes}, {stderr.TotalBytes, stderr.HeadBytes, stderr.TailBytes},
	} {
		all := m.of(stream)
		if count.total != int64(len(all)) || count.head+count.tail > count.total {
			t.Fatalf("stream %d: %+v of %d bytes", stream, count, len(all))
		}
		want := append(append([]byte{}, all[:count.head]...), all[int64(len(all))-count.tail:]...)
		if got := kept(t, log, stream); !bytes.Equal(got, want) {
			t.Fatalf("stream %d keeps %q, want %q", stream, got, want)
		}
	}
	seen, expired := int64(0), int64(0)
	for since := int64(0); ; {
		batch, _ := log.Read(since, max)
		size := int64(0)
		position := since
		for _, chunk := range batch.Chunks {
			if chunk.Position < position || len(chunk.Data) == 0 {
				t.Fatalf("chunk at %d after %d, %d bytes", chunk.Position, position, len(chunk.Data))
			}
			end := chunk.Position + int64(len(chunk.Data))
			if !bytes.Equal(chunk.Data, m.data[chunk.Position:end]) {
				t.Fatalf("at %d: %q, want %q", chunk.Position, chunk.Data, m.data[chunk.Position:end])
			}
			for _, kind := range m.streams[chunk.Position:end] {
				if int(kind) != chunk.Stream {
					t.Fatalf("at %d: a byte of the other stream", chunk.Position)
				}
			}
			position, size = end, size+int64(len(chunk.Data))
		}
		if size > max || batch.Next-since != size+batch.Expired {
			t.Fatalf("read(%d, %d): %d bytes, %d expired, next %d", since, max, size, batch.Expired, batch.Next)
		}
		seen, expired = seen+size, expired+batch.Expired
		if batch.Next == since {
			if !batch.Closed {
				t.Fatalf("no progress at %d, and not closed", since)
			}
			break
		}
		since = batch.Next
	}
	if kept := stdout.HeadBytes + stdout.TailBytes + stderr.HeadBytes + stderr.TailBytes; seen != kept || seen+expired != int64(len(m.data)) {
		t.Fatalf("%d bytes read and %d expired of %d, %d are kept", seen, expired, len(m.data), kept)
	}
}

func TestLogIsLikeAListWithAHoleInIt(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 0))
			caps := [2]int64{int64(chance.IntN(400)), int64(chance.IntN(400))}
			log, m := NewLog(caps[0], caps[1]), &model{}
			for range chance.IntN(60) {
				stream, data := chance.IntN(2), make([]byte, chance.IntN(120))
				for at := range data {
					data[at] = byte(chance.Uint32())
				}
				m.append(stream, data)
				if total := log.Append(stream, data); total != int64(len(m.data)) {
					t.Fatalf("%d bytes so far, and it says %d", len(m.data), total)
				}
				clear(data) // the log has a copy
			}
			log.Close()
			stdout, stderr := log.Counts()
			for stream, count := range []int64{stdout.HeadBytes + stdout.TailBytes, stderr.HeadBytes + stderr.TailBytes} {
				if want := min(caps[stream], int64(len(m.of(stream)))); count != want {
					t.Fatalf("stream %d keeps %d bytes of %d, its cap is %d", stream, count, len(m.of(stream)), caps[stream])
				}
			}
			for _, max := range []int64{1, 7, 1 << 20} {
				check(t, log, m, max)
			}
		})
	}
}

// One byte on each stream in turn would cost sixty times what it holds.
func TestManySmallPiecesAreBounded(t *testing.T) {
	log, m := NewLog(1<<20, 1<<20), &model{}
	for at := range 3 * maxSegments {
		data := []byte{byte(at)}
		log.Append(at%2, data)
		m.append(at%2, data)
	}
	log.Close()
	for _, s := range log.streams {
		if len(s.head) > maxSegments || len(s.tail) > maxSegments {
			t.Fatalf("%d and %d segments", len(s.head), len(s.tail))
		}
	}
	check(t, log, m, 1<<20)
	if batch, _ := log.Read(0, 1<<20); len(batch.Chunks) > maxChunks {
		t.Fatalf("%d chunks in one batch", len(batch.Chunks))
	}
}

func TestReadersAreWokenAndWritersNeverWait(t *testing.T) {
	log := NewLog(1000, 1000)
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			total := int64(0)
			for since := int64(0); ; {
				batch, changed := log.Read(since, 100)
				for _, chunk := range batch.Chunks {
					total += int64(len(chunk.Data))
				}
				total += batch.Expired
				since = batch.Next
				if batch.Closed {
					break
				}
				if len(batch.Chunks) == 0 {
					select {
					case <-changed:
					case <-time.After(20 * time.Second):
						t.Error("nobody woke the reader")
						return
					}
				}
			}
			if total != 2*5000*10 {
				t.Errorf("a reader met %d bytes", total)
			}
		}()
	}
	var writers sync.WaitGroup
	for stream := range 2 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for range 5000 {
				log.Append(stream, []byte("0123456789"))
			}
		}()
	}
	writers.Wait()
	log.Close()
	readers.Wait()
}

func TestReadBeyondTheEnd(t *testing.T) {
	log := NewLog(10, 10)
	log.Append(Stdout, []byte("abc"))
	if batch, _ := log.Read(1000, 10); batch.Next != 3 || len(batch.Chunks) != 0 || batch.Closed {
		t.Errorf("%+v", batch)
	}
	log.Close()
	log.Close()
	if batch, _ := log.Read(1000, 10); !batch.Closed {
		t.Errorf("%+v", batch)
	}
	if segments := (Batch{}).Segments(); segments == nil {
		t.Error("no segments are null in JSON, and have to be []")
	}
}

// A live reader that is as far behind as it may be when the program ends, with a full pipe on each stream.
func TestALiveReaderMissesNothingAtTheEnd(t *testing.T) {
	for _, limit := range []int64{0, 1000, 200_000} {
		log := NewLog(limit, limit)
		log.Pace()
		log.Append(Stdout, make([]byte, limit)) // the head is full
		log.Reached(limit)
		log.Append(Stdout, bytes.Repeat([]byte("b"), int(log.Room())))
		log.Unpace()
		for stream := range 2 {
			log.Append(stream, bytes.Repeat([]byte("c"), pipeBytes))
		}
		log.Close()
		if batch, _ := log.Read(limit, 1<<20); batch.Expired != 0 || !batch.Closed {
			t.Errorf("limit %d: %d bytes are gone", limit, batch.Expired)
		}
	}
}

package output

import (
	"sort"

	"holdfast/guest/internal/wire"
)

// Chunk is one piece of output, of one stream.
type Chunk struct {
	Stream   int
	Position int64
	Data     []byte
}

// Batch is the answer to a read.
type Batch struct {
	Chunks []Chunk
	// Next is the position to read from next.
	Next int64
	// Expired counts the bytes between the asked position and Next that are kept no longer.
	Expired int64
	// Closed: nothing will come after Next.
	Closed bool
}

// Chunks of one batch: each is described in one message, which has a limit.
const maxChunks = 4096

// Read gives what is kept from position `since` on, at most max bytes of it (but at least a byte, if there is one),
// and a channel that is closed at the next change. The data may be kept by the caller.
func (l *Log) Read(since, max int64) (Batch, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since = min(since, l.position)
	var found []Chunk
	for index := range l.streams {
		s := &l.streams[index]
		found = collect(found, index, s.head, since, max)
		found = collect(found, index, s.tail, since, max)
	}
	sort.Slice(found, func(a, b int) bool { return found[a].Position < found[b].Position })
	batch := Batch{Next: since}
	room := max
	for _, chunk := range found {
		if room <= 0 || len(batch.Chunks) == maxChunks {
			return batch, l.changed
		}
		if int64(len(chunk.Data)) > room {
			chunk.Data = chunk.Data[:room]
		}
		room -= int64(len(chunk.Data))
		batch.Expired += chunk.Position - batch.Next
		batch.Next = chunk.Position + int64(len(chunk.Data))
		chunk.Data = append([]byte(nil), chunk.Data...)
		batch.Chunks = append(batch.Chunks, chunk)
	}
	if room > 0 { // all that is kept was taken: what is missing up to the end is gone
		batch.Expired += l.position - batch.Next
		batch.Next = l.position
		batch.Closed = l.closed
	}
	return batch, l.changed
}

// collect adds the segments that reach beyond since; a batch needs no more than max bytes of each stream.
func collect(found []Chunk, index int, segments []segment, since, max int64) []Chunk {
	first := sort.Search(len(segments), func(at int) bool { return segments[at].end() > since })
	for _, piece := range segments[first:] {
		if max < 0 {
			break
		}
		position, data := piece.position, piece.data
		if position < since {
			data, position = data[since-position:], since
		}
		found = append(found, Chunk{index, position, data})
		max -= int64(len(data))
	}
	return found
}

// Segments describes the chunks of a batch for the wire.
func (b Batch) Segments() []wire.Segment {
	segments := make([]wire.Segment, 0, len(b.Chunks))
	for _, chunk := range b.Chunks {
		name := wire.OutputStreamStdout
		if chunk.Stream == Stderr {
			name = wire.OutputStreamStderr
		}
		segments = append(segments, wire.Segment{Stream: name, Position: chunk.Position, SizeBytes: int64(len(chunk.Data))})
	}
	return segments
}

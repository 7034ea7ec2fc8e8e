// Package output keeps what a program wrote: bounded, with positions, and honest about what is gone.
package output

import (
	"math"
	"sync"

	"holdfast/guest/internal/wire"
)

// Streams of a program, as indexes.
const (
	Stdout = 0
	Stderr = 1
)

const (
	// A hostile program alternates one byte on each stream: without a bound on their number,
	// segments of one byte would cost sixty times what they hold.
	maxSegments = 1 << 15
	// Output that arrives without a change of stream is joined up to this size.
	segmentBytes = 64 << 10
	// What a pipe holds, unless its program has made it larger.
	pipeBytes = 64 << 10
)

// Log holds the first and the last bytes of each stream. A position counts the bytes of both streams
// together, in the order in which they arrived, so one number is a cursor into the whole output.
type Log struct {
	mu       sync.Mutex
	streams  [2]stream
	position int64
	closed   bool
	changed  chan struct{}

	// A live reader that wants all of it: writers wait while it is more than pace bytes behind; 0 is no reader.
	pace    int64
	reached int64
	room    *sync.Cond
}

type stream struct {
	headCap, tailCap     int64
	head, tail           []segment
	headBytes, tailBytes int64
	total                int64
}

type segment struct {
	position int64
	data     []byte
}

func (s segment) end() int64 { return s.position + int64(len(s.data)) }

// NewLog makes a log that keeps so many bytes of stdout and of stderr.
func NewLog(stdoutCap, stderrCap int64) *Log {
	log := &Log{changed: make(chan struct{})}
	log.room = sync.NewCond(&log.mu)
	for index, limit := range []int64{stdoutCap, stderrCap} {
		log.streams[index].headCap = limit - limit/2
		log.streams[index].tailCap = limit / 2
	}
	return log
}

// Append adds bytes of one stream; it never blocks. The data is copied. It returns the bytes written so far.
func (l *Log) Append(index int, data []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(data) == 0 {
		return l.position
	}
	s := &l.streams[index]
	s.total += int64(len(data))
	position := l.position
	l.position += int64(len(data))
	if room := s.headCap - s.headBytes; room > 0 && len(s.head) < maxSegments {
		taken := data[:min(room, int64(len(data)))]
		s.head = join(s.head, position, taken)
		s.headBytes += int64(len(taken))
		position += int64(len(taken))
		data = data[len(taken):]
	}
	s.appendTail(position, data)
	l.notify()
	return l.position
}

func (s *stream) appendTail(position int64, data []byte) {
	if len(data) == 0 {
		return
	}
	s.headCap = s.headBytes // the head is complete once anything went to the tail
	if over := int64(len(data)) - s.tailCap; over > 0 {
		s.tail, s.tailBytes = nil, 0
		position, data = position+over, data[over:]
	}
	if len(data) == 0 {
		return
	}
	s.tail = join(s.tail, position, data)
	s.tailBytes += int64(len(data))
	for s.tailBytes > s.tailCap || len(s.tail) > maxSegments {
		first := &s.tail[0]
		drop := min(s.tailBytes-s.tailCap, int64(len(first.data)))
		if drop <= 0 || drop == int64(len(first.data)) {
			s.tailBytes -= int64(len(first.data))
			*first = segment{}
			s.tail = s.tail[1:]
			continue
		}
		first.data = first.data[drop:]
		first.position += drop
		s.tailBytes -= drop
	}
}

// join adds data to the last segment where it continues it, else as a segment of its own.
func join(segments []segment, position int64, data []byte) []segment {
	if last := len(segments) - 1; last >= 0 {
		if s := &segments[last]; s.end() == position && len(s.data)+len(data) <= segmentBytes {
			s.data = append(s.data, data...)
			return segments
		}
	}
	return append(segments, segment{position, append([]byte(nil), data...)})
}

// Pace announces a reader that wants to miss nothing: it calls Reached as it goes, and Unpace when it goes away.
func (l *Log) Pace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace = max(1, min(l.streams[Stdout].tailCap, l.streams[Stderr].tailCap)/2)
	// Nobody waits for the reader once the program has ended: what was left in its pipes comes then, all at once.
	for index := range l.streams {
		l.streams[index].tailCap = max(l.streams[index].tailCap, l.pace+pipeBytes)
	}
}

// Reached says that the reader has all before this position.
func (l *Log) Reached(position int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reached = position
	l.room.Broadcast()
}

// Unpace lets everybody go on: the reader is gone, or the program is.
func (l *Log) Unpace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace = 0
	l.room.Broadcast()
}

// Room waits for the reader, if there is one, and says how many bytes may be written before it is asked again.
func (l *Log) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.pace > 0 && l.position-l.reached >= l.pace {
		l.room.Wait()
	}
	if l.pace == 0 {
		return math.MaxInt64
	}
	return l.pace - (l.position - l.reached)
}

// Close says that nothing more will come.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.notify()
	}
}

func (l *Log) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Counts says how much each stream carried and how much of it is kept.
func (l *Log) Counts() (stdout, stderr wire.StreamCount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := func(s *stream) wire.StreamCount {
		return wire.StreamCount{TotalBytes: s.total, HeadBytes: s.headBytes, TailBytes: s.tailBytes}
	}
	return count(&l.streams[Stdout]), count(&l.streams[Stderr])
}

// Kept calls visit with every kept piece of one stream, in order. Call it when the log is closed.
func (l *Log) Kept(index int, visit func([]byte) error) error {
	s := &l.streams[index]
	for _, segments := range [][]segment{s.head, s.tail} {
		for _, piece := range segments {
			if err := visit(piece.data); err != nil {
				return err
			}
		}
	}
	return nil
}

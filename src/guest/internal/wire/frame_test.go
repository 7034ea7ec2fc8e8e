package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func TestFramesMakeTheRoundTrip(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	var sent []Frame
	for range 500 {
		frame := Frame{Stream: chance.Uint32(), Kind: Kind(chance.IntN(int(KindEvent) + 1))}
		if limit := MaxPayload(frame.Kind); limit == 4 {
			frame.Payload = binary.BigEndian.AppendUint32(nil, chance.Uint32())
		} else if size := chance.IntN(1 + min(limit, 3000)); size > 0 {
			frame.Payload = make([]byte, size)
			for at := range frame.Payload {
				frame.Payload[at] = byte(chance.Uint32())
			}
		}
		sent = append(sent, frame)
		stream = AppendFrame(stream, frame)
	}
	for name, reader := range map[string]io.Reader{
		"whole":        bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"in halves":    iotest.HalfReader(bytes.NewReader(stream)),
	} {
		for at, want := range sent {
			got, err := ReadFrame(reader)
			if err != nil || got.Stream != want.Stream || got.Kind != want.Kind || !bytes.Equal(got.Payload, want.Payload) {
				t.Fatalf("%s: frame %d is %v (%v), want %v", name, at, got, err, want)
			}
		}
		if _, err := ReadFrame(reader); err != io.EOF {
			t.Fatalf("%s: after the last frame: %v", name, err)
		}
	}
}

func header(length, stream uint32, kind byte) []byte {
	raw := binary.BigEndian.AppendUint32(nil, length)
	return append(binary.BigEndian.AppendUint32(raw, stream), kind)
}

func TestFramesThatLieAreRefusedBeforeTheyAreRead(t *testing.T) {
	for name, raw := range map[string][]byte{
		"message over the limit": header(MaxMessageBytes+1, 1, byte(KindMessage)),
		"event over the limit":   header(MaxMessageBytes+1, 1, byte(KindEvent)),
		"data over the limit":    header(MaxDataBytes+1, 1, byte(KindData)),
		"stderr over the limit":  header(MaxDataBytes+1, 1, byte(KindDataErr)),
		"four gigabytes":         header(1<<32-1, 1, byte(KindData)),
		"end with a payload":     header(1, 1, byte(KindEnd)),
		"reset with a payload":   header(1, 1, byte(KindReset)),
		"short window":           header(3, 1, byte(KindWindow)),
		"no window":              header(0, 1, byte(KindWindow)),
		"unknown kind":           header(0, 1, byte(KindEvent)+1),
		"kind 255":               header(0, 1, 255),
	} {
		// a reader that gives the header and fails the test when more is asked for
		_, err := ReadFrame(io.MultiReader(bytes.NewReader(raw), iotest.ErrReader(errors.New("it read on"))))
		if err == nil || err.Error() == "it read on" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAStreamThatEndsInsideAFrame(t *testing.T) {
	whole := AppendFrame(nil, Frame{Stream: 1, Kind: KindData, Payload: []byte("payload")})
	for size := range whole {
		_, err := ReadFrame(bytes.NewReader(whole[:size]))
		want := io.ErrUnexpectedEOF
		if size == 0 {
			want = io.EOF
		}
		if err != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

func TestAMessageOverTheLimitIsAnError(t *testing.T) {
	if _, err := Message(1, KindMessage, Failure{Message: string(make([]byte, MaxMessageBytes))}); err == nil {
		t.Error("it was made")
	}
	if _, err := Message(1, KindMessage, Failure{Message: "short"}); err != nil {
		t.Error(err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendFrame(nil, Frame{Stream: 7, Kind: KindWindow, Payload: []byte{0, 0, 0, 1}}))
	f.Add(AppendFrame(nil, Frame{Kind: KindMessage, Payload: []byte(`{"protocol":1}`)}))
	f.Add(header(1<<32-1, 0, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		reader := bytes.NewReader(raw)
		for {
			before := reader.Len()
			frame, err := ReadFrame(reader)
			if err != nil {
				return
			}
			used := raw[len(raw)-before : len(raw)-reader.Len()]
			if len(frame.Payload) > MaxPayload(frame.Kind) {
				t.Fatalf("payload of %d bytes for kind %d", len(frame.Payload), frame.Kind)
			}
			if again := AppendFrame(nil, frame); !bytes.Equal(again, used) {
				t.Fatalf("%x was read and %x written", used, again)
			}
		}
	})
}

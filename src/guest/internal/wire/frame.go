// Package wire is the byte stream between host and guest: frames, and the messages in them.
//
// protocol.py in the Python package is the definition; messages_gen.go comes from it.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// HeaderBytes is the size of length, stream and kind.
const HeaderBytes = 9

// Frame is one unit on the stream.
type Frame struct {
	Stream  uint32
	Kind    Kind
	Payload []byte
}

// MaxPayload is the largest payload that a frame of this kind may have.
func MaxPayload(kind Kind) int {
	switch kind {
	case KindMessage, KindEvent:
		return MaxMessageBytes
	case KindData, KindDataErr:
		return MaxDataBytes
	case KindWindow:
		return 4
	default:
		return 0
	}
}

// ReadFrame reads one frame. The length is checked before a byte of the payload is taken,
// so that a lying header cannot make us allocate.
func ReadFrame(from io.Reader) (Frame, error) {
	var header [HeaderBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return Frame{}, err
	}
	frame := Frame{Stream: binary.BigEndian.Uint32(header[4:8]), Kind: Kind(header[8])}
	length := binary.BigEndian.Uint32(header[:4])
	if frame.Kind > KindEvent {
		return Frame{}, fmt.Errorf("frame of unknown kind %d", frame.Kind)
	}
	if length > uint32(MaxPayload(frame.Kind)) {
		return Frame{}, fmt.Errorf("frame of kind %d is %d bytes long, the limit is %d", frame.Kind, length, MaxPayload(frame.Kind))
	}
	if frame.Kind == KindWindow && length != 4 {
		return Frame{}, fmt.Errorf("window frame of %d bytes", length)
	}
	if length == 0 {
		return frame, nil
	}
	frame.Payload = make([]byte, length)
	if _, err := io.ReadFull(from, frame.Payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return frame, nil
}

// AppendFrame appends header and payload to buffer.
func AppendFrame(buffer []byte, frame Frame) []byte {
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(frame.Payload)))
	buffer = binary.BigEndian.AppendUint32(buffer, frame.Stream)
	buffer = append(buffer, byte(frame.Kind))
	return append(buffer, frame.Payload...)
}

// Message makes the frame of a JSON message: KindMessage or KindEvent.
func Message(stream uint32, kind Kind, message any) (Frame, error) {
	payload, err := json.Marshal(message)
	if err != nil {
		return Frame{}, err
	}
	if len(payload) > MaxMessageBytes {
		return Frame{}, fmt.Errorf("message of %d bytes is over the limit of %d", len(payload), MaxMessageBytes)
	}
	return Frame{Stream: stream, Kind: kind, Payload: payload}, nil
}

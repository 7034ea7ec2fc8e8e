package server

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"

	"holdfast/guest/internal/wire"
)

// Replay answers a host that has said all in advance. A short answer goes to stdout, as base64, since engines take
// that for text; a long one lies in the file, and stdout says how long it is.
func (s *Server) Replay(request io.ReadCloser, answer *os.File, proof *string, stdout io.Writer) error {
	s.proof = proof
	out := &spill{file: answer}
	host := newConn(s, request, out, nil)
	host.replay = true
	if err := s.serveOne(host); err != nil {
		return err
	}
	return out.tell(stdout)
}

// spill is in memory while it is short, and then in a file.
type spill struct {
	buffer  bytes.Buffer
	file    *os.File
	spilled int64
}

func (s *spill) Write(data []byte) (int, error) {
	if s.spilled == 0 {
		s.buffer.Write(data)
		if s.buffer.Len() <= wire.InlineBytes {
			return len(data), nil
		}
		written, err := s.buffer.WriteTo(s.file)
		s.spilled += written
		return len(data), err
	}
	written, err := s.file.Write(data)
	s.spilled += int64(written)
	return written, err
}

// tell says where the answer is, or what.
func (s *spill) tell(stdout io.Writer) error {
	if s.spilled == 0 {
		_, err := fmt.Fprintf(stdout, "inline %s\n", base64.StdEncoding.EncodeToString(s.buffer.Bytes()))
		return err
	}
	if err := s.file.Close(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "file %d\n", s.spilled)
	return err
}

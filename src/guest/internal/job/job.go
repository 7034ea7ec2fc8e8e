package job

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"holdfast/guest/internal/wire"
)

const (
	firstUser = 1_000_000
	users     = 1_000_000_000
)

// Job is a run that is ready to start.
type Job struct {
	// Config of the guest that is to run it.
	Config wire.GuestConfig
	spec   *Spec
	out    *os.Root
}

// Open prepares the run in a folder. We are still root then: the program's user, who is new for each run because the
// kernel counts processes by user, is given the workspace. The results' folder becomes that user's too, as we will be
// that user when we write to it; but it lies behind one that only root may enter, and we keep it open.
func Open(folder string) (*Job, error) {
	spec, err := read(folder)
	if err != nil {
		return nil, err
	}
	user, err := newUser()
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		return nil, err
	}
	if err := spec.place(filepath.Join(folder, "files"), user); err != nil {
		return nil, err
	}
	results := filepath.Join(folder, "out")
	if err := os.Mkdir(results, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(results, "artifacts"), 0o755); err != nil {
		return nil, err
	}
	if err := give(results, user); err != nil {
		return nil, err
	}
	out, err := os.OpenRoot(results)
	if err != nil {
		return nil, err
	}
	return &Job{Config: spec.config(user), spec: spec, out: out}, nil
}

// newUser is nobody else's; nil where we are not root, and stay who we are.
func newUser() (*int64, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	user := int64(firstUser + binary.BigEndian.Uint64(random[:])%users)
	return &user, nil
}

// Run has the run done by a server, and writes down how it ended; the most important of it goes to stdout, as JSON.
func (j *Job) Run(serve func(io.ReadCloser, io.Writer) error, stdout io.Writer) error {
	questions, ask := io.Pipe()
	answers, answer := io.Pipe()
	go func() {
		err := serve(questions, answer)
		if err == nil {
			err = io.ErrUnexpectedEOF // for us, who are still waiting: the end of a stream is no answer
		}
		answer.CloseWithError(err)
	}()
	go func() { ask.CloseWithError(j.ask(ask)) }()
	heard, err := j.listen(answers)
	if err != nil {
		return err
	}
	return j.record(heard, stdout)
}

// ask says all that there is to say. The program's output is as long as we ask for, so credit need not bound it.
func (j *Job) ask(guest io.Writer) error {
	const credit = 1 << 60
	for stream, message := range []any{
		wire.HostHello{Protocol: wire.Protocol, Window: credit, OnEof: wire.OnEofFinish},
		j.spec.request(),
	} {
		frame, err := wire.Message(uint32(stream), wire.KindMessage, message)
		if err != nil {
			return err
		}
		if _, err := guest.Write(wire.AppendFrame(nil, frame)); err != nil {
			return err
		}
	}
	return nil
}

// heard is the guest's answer.
type heard struct {
	ended     wire.RunEnded
	streams   [2][]byte
	artifacts []artifact
}

type artifact struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	Content   []byte `json:"content_base64"`
	name      string // as the file system has it
}

func (j *Job) listen(guest io.Reader) (*heard, error) {
	var found heard
	for {
		frame, err := wire.ReadFrame(guest)
		if err != nil {
			return nil, fmt.Errorf("the run was not finished: %w", err)
		}
		if frame.Stream == 0 { // the guest's hello
			continue
		}
		switch frame.Kind {
		case wire.KindDataErr:
			found.streams[1] = append(found.streams[1], frame.Payload...)
		case wire.KindData:
			if last := len(found.artifacts) - 1; last >= 0 {
				found.artifacts[last].Content = append(found.artifacts[last].Content, frame.Payload...)
			} else {
				found.streams[0] = append(found.streams[0], frame.Payload...)
			}
		case wire.KindEvent:
			var event wire.ArtifactFound
			if err := json.Unmarshal(frame.Payload, &event); err != nil {
				return nil, err
			}
			name, err := wire.FromWire(event.Path)
			if err != nil {
				return nil, err
			}
			found.artifacts = append(found.artifacts, artifact{readable(name), event.SizeBytes, []byte{}, name})
		case wire.KindMessage:
			return &found, reply(frame.Payload, &found.ended)
		}
	}
}

func reply(payload []byte, ended *wire.RunEnded) error {
	var failure wire.Failure
	if err := json.Unmarshal(payload, &failure); err != nil {
		return err
	}
	switch failure.Type {
	case wire.TypeFailure:
		return &failure
	case wire.TypeRunEnded:
		return json.Unmarshal(payload, ended)
	default:
		return errors.New("the guest answered a run with " + failure.Type)
	}
}

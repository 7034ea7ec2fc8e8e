package server

import (
	"io"

	"holdfast/guest/internal/files"
	"holdfast/guest/internal/wire"
)

// run does all of a one-shot run: files in, the program, artifacts out.
func (s *Server) run(call *stream, request wire.RunRequest) (any, error) {
	if request.Program.Delivery == wire.DeliveryDetached {
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "the program of a run cannot be detached from it")
	}
	wanted, err := files.Compile(request.Artifacts)
	if err != nil {
		return nil, err
	}
	for _, file := range request.Files {
		body := &exactly{from: call, left: file.SizeBytes}
		if _, err := s.files.Write(wire.FileWrite{Path: file.Path, Overwrite: true}, body); err != nil {
			return nil, err
		}
	}
	exec, err := s.execs.Start(request.Program)
	if err != nil {
		return nil, err
	}
	ended, err := s.attend(call, request.Program, exec)
	if err != nil {
		return nil, err
	}
	reply := wire.RunEnded{Type: wire.TypeRunEnded, Ended: *ended, Skipped: []wire.ArtifactSkipped{}, Proof: s.proof}
	if len(wanted) > 0 {
		if err := s.collect(call, request, wanted, &reply); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// collect sends the files that match, as far as the caps go. Nothing of the program is left that could change them.
func (s *Server) collect(call *stream, request wire.RunRequest, wanted files.Patterns, reply *wire.RunEnded) error {
	found, unlisted, err := s.files.Matching(wanted)
	if err != nil {
		return err
	}
	reply.Unlisted = unlisted
	room, count := request.MaxArtifactBytes, request.MaxArtifacts
	for _, entry := range found {
		sink := artifact{call: call, entry: entry}
		if entry.SizeBytes > room || count == 0 || sink.copy(s.files) != nil && !sink.announced {
			reply.SkippedCount++
			if len(reply.Skipped) < wire.MaxSkipped {
				reply.Skipped = append(reply.Skipped, wire.ArtifactSkipped{Path: entry.Path, SizeBytes: entry.SizeBytes})
			}
			continue
		}
		if sink.err != nil {
			return sink.err
		}
		room -= entry.SizeBytes
		count--
	}
	return nil
}

// artifact announces a file when its first byte is there: one that cannot be read is skipped.
type artifact struct {
	call      *stream
	entry     wire.FileEntry
	announced bool
	err       error
}

func (a *artifact) copy(from *files.Workspace) error {
	sent, err := from.Read(wire.FileRead{Path: a.entry.Path, MaxBytes: &a.entry.SizeBytes}, a)
	if err == nil && sent.SentBytes != a.entry.SizeBytes {
		err = wire.Fail(wire.ErrorCodeInternal, "the artifact %q changed while it was read", a.entry.Path)
	}
	if err == nil && !a.announced {
		err = a.announce()
	}
	a.err = err
	return err
}

func (a *artifact) announce() error {
	a.announced = true
	return a.call.event(wire.ArtifactFound{Type: wire.TypeArtifactFound, Path: a.entry.Path, SizeBytes: a.entry.SizeBytes})
}

func (a *artifact) Write(data []byte) (int, error) {
	if !a.announced {
		if err := a.announce(); err != nil {
			return 0, err
		}
	}
	return a.call.Write(data)
}

// exactly reads so many bytes and then io.EOF; fewer are an error.
type exactly struct {
	from io.Reader
	left int64
}

func (e *exactly) Read(into []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	got, err := e.from.Read(into[:min(int64(len(into)), e.left)])
	e.left -= int64(got)
	if err == io.EOF && e.left > 0 {
		err = wire.Fail(wire.ErrorCodeInvalidRequest, "the host sent less of a file than it said")
	}
	return got, err
}

package server

import "holdfast/guest/internal/wire"

func (s *Server) fileWrite(call *stream, request wire.FileWrite) (any, error) {
	return done(s.files.Write(request, call))
}

func (s *Server) fileRead(call *stream, request wire.FileRead) (any, error) {
	return s.files.Read(request, call)
}

func (s *Server) fileList(call *stream, request wire.FileList) (any, error) {
	return s.files.List(request, func(entries []wire.FileEntry) error {
		if err := call.ctx.Err(); err != nil {
			return errAborted
		}
		return call.event(wire.FilePage{Type: wire.TypeFilePage, Entries: entries})
	})
}

func (s *Server) fileStat(_ *stream, request wire.FileStat) (any, error) {
	return done(s.files.Stat(request))
}

func (s *Server) fileDelete(call *stream, request wire.FileDelete) (any, error) {
	return wire.Done{Type: wire.TypeDone}, s.files.Delete(call.ctx, request)
}

func (s *Server) fileMkdir(_ *stream, request wire.FileMkdir) (any, error) {
	return done(s.files.Mkdir(request))
}

func (s *Server) fileMove(_ *stream, request wire.FileMove) (any, error) {
	return done(s.files.Move(request))
}

func done(entry wire.FileEntry, err error) (any, error) {
	return wire.FileDone{Type: wire.TypeFileDone, Entry: entry}, err
}

package files

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// Read sends a file, or a piece of it, to sink. It ends where the file ended when it was opened, so that
// a file which grows as fast as it is read has an end too.
func (w *Workspace) Read(req wire.FileRead, sink io.Writer) (_ wire.FileSent, err error) {
	defer func() { err = w.explain("read", req.Path, err) }()
	name, err := w.name(req.Path)
	if err != nil {
		return wire.FileSent{}, err
	}
	if req.Offset < 0 || (req.MaxBytes != nil && *req.MaxBytes < 0) {
		return wire.FileSent{}, refuse(wire.ErrorCodeInvalidRequest, "has no bytes before its start; offset and max_bytes may not be negative")
	}
	// without O_NONBLOCK, a FIFO would hold us until somebody writes to it
	file, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return wire.FileSent{}, err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return wire.FileSent{}, err
	}
	if err := regular(stat.Mode & unix.S_IFMT); err != nil {
		return wire.FileSent{}, err
	}
	size := max(stat.Size-req.Offset, 0)
	if req.MaxBytes != nil {
		size = min(size, *req.MaxBytes)
	}
	sent, err := send(io.NewSectionReader(file, req.Offset, size), size, sink)
	if err != nil {
		return wire.FileSent{}, err
	}
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return wire.FileSent{}, err
	}
	return wire.FileSent{
		Type:      wire.TypeFileSent,
		Entry:     entry(name, &stat),
		SentBytes: sent,
		Truncated: stat.Size-req.Offset > sent,
	}, nil
}

func send(from io.Reader, size int64, sink io.Writer) (sent int64, err error) {
	buffer := make([]byte, min(size, wire.MaxDataBytes))
	for sent < size {
		count, err := io.ReadFull(from, buffer[:min(size-sent, int64(len(buffer)))])
		if count > 0 {
			if _, err := sink.Write(buffer[:count]); err != nil {
				return sent, theirs{err}
			}
			sent += int64(count)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF { // it shrank
			break
		}
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func regular(kind uint32) error {
	switch kind {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return unix.ENXIO
	}
}

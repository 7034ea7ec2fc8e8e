package files

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const (
	// one directory is open for each level; what is deeper can be listed from a directory further down
	maxListDepth = 128
	// a byte of a name may become eight in JSON (\u0000ff), and a page has to fit into one message
	maxPageBytes = wire.MaxMessageBytes / 16
)

var errEnough = errors.New("max_entries is reached")

// List sends the entries of a directory in pages; an empty path is the workspace. Links are listed, never
// walked through. Entries come in the directory's own order, sorted by name only within each batch of
// wire.PageEntries, since a directory may hold more names than we have memory for; a directory comes
// before what is in it. Truncated tells that something is missing: there were more than max_entries, or a
// directory could not be read or was too deep.
func (w *Workspace) List(req wire.FileList, page func([]wire.FileEntry) error) (_ wire.FileListed, err error) {
	defer func() { err = w.explain("list", req.Path, err) }()
	name := "."
	if req.Path != "" {
		if name, err = w.name(req.Path); err != nil {
			return wire.FileListed{}, err
		}
	}
	if req.MaxEntries < 0 {
		return wire.FileListed{}, refuse(wire.ErrorCodeInvalidRequest, "cannot be listed with a negative max_entries")
	}
	dir, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return wire.FileListed{}, err
	}
	defer dir.Close()
	l := listing{page: page, recursive: req.Recursive, left: req.MaxEntries}
	switch err := l.walk(dir, name, 1); err {
	case nil:
	case errEnough:
		l.truncated = true
	default:
		return wire.FileListed{}, err
	}
	if err := l.flush(); err != nil {
		return wire.FileListed{}, err
	}
	return wire.FileListed{Type: wire.TypeFileListed, Count: req.MaxEntries - l.left, Truncated: l.truncated}, nil
}

type listing struct {
	page      func([]wire.FileEntry) error
	recursive bool
	left      int64
	truncated bool
	pending   []wire.FileEntry
	bytes     int
}

func (l *listing) walk(dir *os.File, prefix string, depth int) error {
	for {
		names, err := dir.Readdirnames(wire.PageEntries)
		slices.Sort(names)
		for _, base := range names {
			if err := l.visit(dir, base, path.Join(prefix, base), depth); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *listing) visit(dir *os.File, base, name string, depth int) error {
	var stat unix.Stat_t
	switch err := unix.Fstatat(int(dir.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT: // it went away
		return nil
	case err != nil:
		return err
	case l.left == 0:
		return errEnough
	case len(name) > maxPathBytes: // no request could name it
		l.truncated = true
		return nil
	}
	l.left--
	l.pending = append(l.pending, entry(name, &stat))
	l.bytes += len(name)
	if len(l.pending) == wire.PageEntries || l.bytes >= maxPageBytes {
		if err := l.flush(); err != nil {
			return err
		}
	}
	if !l.recursive || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	return l.descend(dir, base, name, depth+1)
}

func (l *listing) descend(dir *os.File, base, name string, depth int) error {
	if depth > maxListDepth {
		l.truncated = true
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		l.truncated = true
		return nil
	}
	below := os.NewFile(uintptr(fd), base)
	defer below.Close()
	err = l.walk(below, name, depth)
	var caller theirs
	if err == nil || err == errEnough || errors.As(err, &caller) {
		return err
	}
	l.truncated = true
	return nil
}

func (l *listing) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	err := l.page(l.pending)
	l.pending, l.bytes = nil, 0
	if err != nil {
		return theirs{err}
	}
	return nil
}

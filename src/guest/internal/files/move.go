package files

import (
	"errors"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// Mkdir makes a directory and its parents; one that is there already is fine.
func (w *Workspace) Mkdir(req wire.FileMkdir) (_ wire.FileEntry, err error) {
	defer func() { err = w.explain("make directory", req.Path, err) }()
	name, err := w.name(req.Path)
	if err != nil {
		return wire.FileEntry{}, err
	}
	switch existing, err := w.statName(name); {
	case err == nil && existing.Kind == wire.FileKindDirectory:
		return existing, nil
	case err == nil:
		return wire.FileEntry{}, refuse(wire.ErrorCodeAlreadyExists, "exists already, and is not a directory")
	case errors.Is(err, unix.ENOENT):
		if err := w.roomForFile(); err != nil {
			return wire.FileEntry{}, err
		}
	}
	if err := w.root.MkdirAll(name, 0o755); err != nil {
		return wire.FileEntry{}, err
	}
	return w.statName(name)
}

// Move gives a file, a directory or a link another name, and makes the parents of that name. A link at
// either end is moved or replaced itself; it is not followed. The destination is the new name, never a
// directory to move into.
func (w *Workspace) Move(req wire.FileMove) (_ wire.FileEntry, err error) {
	at := req.Source
	defer func() { err = w.explain("move", at, err) }()
	source, err := w.name(req.Source)
	if err != nil {
		return wire.FileEntry{}, err
	}
	from, err := w.find(source, false)
	if err != nil {
		return wire.FileEntry{}, err
	}
	defer from.dir.Close()
	if !from.exists {
		return wire.FileEntry{}, unix.ENOENT
	}
	if source == "." {
		return wire.FileEntry{}, theWorkspace
	}
	at = req.Destination // all that can go wrong from here on is about this end
	destination, err := w.name(req.Destination)
	if err != nil {
		return wire.FileEntry{}, err
	}
	if destination == "." {
		return wire.FileEntry{}, theWorkspace
	}
	to, err := w.findOrMake(destination, false)
	if err != nil {
		return wire.FileEntry{}, err
	}
	defer to.dir.Close()
	err = unix.Renameat2(int(from.dir.Fd()), from.base, int(to.dir.Fd()), to.base, noReplace(req.Overwrite))
	if err != nil {
		return wire.FileEntry{}, err
	}
	return entry(destination, &from.stat), nil
}

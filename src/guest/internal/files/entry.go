package files

import (
	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// entry describes a file; name is relative to the workspace.
func entry(name string, stat *unix.Stat_t) wire.FileEntry {
	kind := wire.FileKindOther
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = wire.FileKindFile
	case unix.S_IFDIR:
		kind = wire.FileKindDirectory
	case unix.S_IFLNK:
		kind = wire.FileKindSymlink
	}
	return wire.FileEntry{
		Path:       wire.ToWire(name),
		Kind:       kind,
		SizeBytes:  stat.Size,
		Mode:       int64(stat.Mode & 0o7777),
		ModifiedMS: stat.Mtim.Nano() / 1e6,
	}
}

// Stat describes what a path leads to; an empty path is the workspace.
func (w *Workspace) Stat(req wire.FileStat) (_ wire.FileEntry, err error) {
	defer func() { err = w.explain("look at", req.Path, err) }()
	name := "."
	if req.Path != "" {
		if name, err = w.name(req.Path); err != nil {
			return wire.FileEntry{}, err
		}
	}
	return w.statName(name)
}

func (w *Workspace) statName(name string) (wire.FileEntry, error) {
	found, err := w.find(name, true)
	if err != nil {
		return wire.FileEntry{}, err
	}
	defer found.dir.Close()
	if !found.exists {
		return wire.FileEntry{}, unix.ENOENT
	}
	return entry(name, &found.stat), nil
}

package files

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const (
	maxPathBytes = 4096
	maxNameBytes = 255
	maxLinks     = 40 // as many as the kernel follows
)

// name turns the path of a request into one relative to the workspace, "." for the workspace itself.
// `..` is taken out here, by text: `a/../b` is `b`, whether or not there is an `a`, or a link of that name.
func (w *Workspace) name(text string) (string, error) {
	name, err := wire.FromWire(text)
	if err != nil {
		return "", refuse(wire.ErrorCodeInvalidRequest, "is not a path: %v", err)
	}
	if name == "" {
		return "", refuse(wire.ErrorCodeInvalidRequest, "is empty; name a path beneath the workspace")
	}
	if len(name) > maxPathBytes {
		return "", unix.ENAMETOOLONG
	}
	if path.IsAbs(name) {
		// the slash at the end keeps /workspace2 apart from /workspace
		below, found := strings.CutPrefix(path.Clean(name)+"/", strings.TrimSuffix(w.path, "/")+"/")
		if !found {
			return "", outside
		}
		name = below
	}
	name = path.Clean(name)
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", outside
		}
		if len(part) > maxNameBytes {
			return "", unix.ENAMETOOLONG
		}
	}
	return name, nil
}

// place is a name in an open directory: what is done there happens in that very directory, wherever
// its path leads in the meantime.
type place struct {
	dir    *os.File
	base   string
	exists bool
	stat   unix.Stat_t // of the name itself, not of what it links to
}

// find opens the directory of a name and looks at what is there; nothing there is not an error. With
// follow, a link as the last component is replaced by what it leads to, which then has to exist.
func (w *Workspace) find(name string, follow bool) (place, error) {
	found, err := w.lookAt(name)
	if err != nil || !follow || !found.isLink() {
		return found, err
	}
	found.dir.Close()
	if name, err = w.withoutLinks(name); err != nil {
		return place{}, err
	}
	found, err = w.lookAt(name)
	if err == nil && found.isLink() { // somebody swaps links faster than we follow them
		found.dir.Close()
		return place{}, unix.ELOOP
	}
	return found, err
}

func (w *Workspace) lookAt(name string) (place, error) {
	dir, err := w.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return place{}, err
	}
	found := place{dir: dir, base: path.Base(name), exists: true}
	err = unix.Fstatat(int(dir.Fd()), found.base, &found.stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		found.exists, err = false, nil
	}
	if err != nil {
		dir.Close()
	}
	return found, err
}

func (p *place) kind() uint32 { return p.stat.Mode & unix.S_IFMT }
func (p *place) isLink() bool { return p.exists && p.kind() == unix.S_IFLNK }

// findOrMake is find for something that is about to be made: missing directories on the way are made too.
func (w *Workspace) findOrMake(name string, follow bool) (place, error) {
	found, err := w.find(name, follow)
	if !errors.Is(err, unix.ENOENT) {
		return found, err
	}
	if err := w.roomForFile(); err != nil {
		return place{}, err
	}
	// something that is there but no directory is for find to name
	if err := w.root.MkdirAll(path.Dir(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return place{}, err
	}
	return w.find(name, follow)
}

// withoutLinks is the path that a name leads to. It is text, and may be wrong by the time it is used:
// whoever uses it goes through os.Root again.
func (w *Workspace) withoutLinks(name string) (string, error) {
	done, rest := ".", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			if done == "." {
				return "", outside
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		target, err := w.root.Readlink(next)
		switch {
		case errors.Is(err, unix.EINVAL): // not a link
			done = next
		case err != nil:
			return "", err
		case path.IsAbs(target):
			return "", outside
		case links == maxLinks:
			return "", unix.ELOOP
		default:
			links++
			rest = append(strings.Split(target, "/"), rest...)
		}
	}
	return done, nil
}

package files

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

var theWorkspace = refusal{wire.ErrorCodePathNotAllowed, "is the workspace itself; name something in it"}

// Delete removes a file, a link or a directory. ctx ends it early: a tenant that makes files as fast as
// they are deleted could keep it busy for ever.
func (w *Workspace) Delete(ctx context.Context, req wire.FileDelete) (err error) {
	defer func() { err = w.explain("delete", req.Path, err) }()
	name, err := w.name(req.Path)
	if err != nil {
		return err
	}
	if name == "." {
		return theWorkspace
	}
	found, err := w.find(name, false)
	if err != nil {
		return err
	}
	defer found.dir.Close()
	switch {
	case !found.exists:
		return unix.ENOENT
	case found.kind() != unix.S_IFDIR:
		return unix.Unlinkat(int(found.dir.Fd()), found.base, 0)
	case !req.Recursive:
		return unix.Unlinkat(int(found.dir.Fd()), found.base, unix.AT_REMOVEDIR)
	default:
		return removeTree(ctx, found.dir, found.base)
	}
}

// removeTree deletes a directory with all that is in it. A tenant can nest directories deeper than we
// have descriptors or stack, so nothing here goes deep: directories two levels down are moved up beneath
// the top one until there is only one level left.
func removeTree(ctx context.Context, parent *os.File, base string) error {
	top, err := openUnlocked(parent, base)
	if err != nil {
		return err
	}
	defer top.Close()
	for {
		err := unix.Unlinkat(int(parent.Fd()), base, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			return err
		}
		gone, err := sweep(ctx, top, func(name string) error { return empty(ctx, top, name) })
		if gone == 0 { // nothing left that we can change
			if err == nil {
				err = unix.ENOTEMPTY
			}
			return err
		}
	}
}

// empty removes the directory name in top, after moving the directories in it to top.
func empty(ctx context.Context, top *os.File, name string) error {
	dir, err := openUnlocked(top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = sweep(ctx, dir, func(below string) error {
		// a directory that changes its parent has to be writable itself
		if unlocked, err := openUnlocked(dir, below); err == nil {
			unlocked.Close()
		}
		err := unix.Renameat2(int(dir.Fd()), below, int(top.Fd()), hiddenName(), unix.RENAME_NOREPLACE)
		switch err {
		case unix.EXDEV, // overlayfs does not move directories of the image, which is as deep as its maker made it
			unix.ENOSPC, unix.EDQUOT: // a longer name may need space; what is deleted deeper down makes some
			return removeTree(ctx, dir, below)
		}
		return err
	})
	if err != nil {
		return err
	}
	return unix.Unlinkat(int(top.Fd()), name, unix.AT_REMOVEDIR)
}

// sweep goes once over dir: it deletes files, links and empty directories, and hands over the other
// directories. It counts what is gone afterwards, goes on after an error, and returns the first one.
func sweep(ctx context.Context, dir *os.File, onDirectory func(name string) error) (gone int, first error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for {
		names, readErr := dir.Readdirnames(wire.PageEntries)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return 0, theirs{err}
			}
			err := unix.Unlinkat(int(dir.Fd()), name, 0)
			if err == unix.EISDIR {
				err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
			}
			if err == unix.ENOTEMPTY {
				err = onDirectory(name)
			}
			switch {
			case err == nil:
				gone++
			case err != unix.ENOENT && first == nil:
				first = err
			}
		}
		if readErr == io.EOF {
			return gone, first
		}
		if readErr != nil {
			return gone, readErr
		}
	}
}

// openUnlocked opens a directory after making it usable for us, if it is ours. The mode is changed on the
// descriptor: by name, a link put in its place would let us change something else.
func openUnlocked(parent *os.File, name string) (*os.File, error) {
	handle, err := unix.Openat(int(parent.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(handle)
	var stat unix.Stat_t
	if err := unix.Fstat(handle, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&0o700 != 0o700 {
		// fchmod does not take an O_PATH descriptor; if this fails, opening fails and says why
		_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", handle), stat.Mode&0o777|0o700)
	}
	fd, err := unix.Openat(handle, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

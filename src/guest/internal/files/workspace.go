// Package files does what a host may do with the files of a sandbox, beneath the workspace only.
//
// The tenants own the workspace and may change it between any two system calls of ours, so nothing is
// checked by path and then used by path: os.Root opens the parent one directory at a time, following no
// link that leaves, and the act itself is a system call on that open directory and one plain name.
// os.Root and not openat2, because gVisor and some seccomp profiles have no openat2.
//
// Symbolic links are followed when they stay inside; Delete and Move act on the link itself. An absolute
// link is refused even when it points into the workspace.
package files

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// Limits that the guest keeps by itself; 0 is none.
type Limits struct {
	// FileBytes is the largest file that may be written.
	FileBytes int64
	// Files is the number of inodes that the workspace's file system may use.
	Files int64
}

// Workspace is the directory that file requests are confined to. Its methods may be called at the same time.
type Workspace struct {
	path   string
	root   *os.Root
	dir    *os.File
	limits Limits
	// what os.Root says when a path leaves it; the os package keeps that error to itself
	escapes error
}

// Open opens the workspace at an absolute path.
func Open(workspace string, limits Limits) (*Workspace, error) {
	if !path.IsAbs(workspace) {
		return nil, fmt.Errorf("workspace %q is not an absolute path", workspace)
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	_, escapes := root.Open("..")
	if escapes = errors.Unwrap(escapes); escapes == nil {
		root.Close()
		dir.Close()
		return nil, fmt.Errorf("workspace %q does not confine: its parent can be opened", workspace)
	}
	return &Workspace{path: path.Clean(workspace), root: root, dir: dir, limits: limits, escapes: escapes}, nil
}

// Close lets go of the directory; no method may be called after it.
func (w *Workspace) Close() error {
	return errors.Join(w.dir.Close(), w.root.Close())
}

// Space tells how large the workspace's file system is, and how much of it is free.
func (w *Workspace) Space() (totalBytes, freeBytes, freeFiles int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(w.dir.Fd()), &stat); err != nil {
		return 0, 0, 0, err
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, int64(stat.Ffree), nil
}

// roomForFile refuses when one file more would be over the limit. The file system counts, not we: a count
// of our own would not see what the tenants make. Some file systems do not count at all.
func (w *Workspace) roomForFile() error {
	if w.limits.Files == 0 {
		return nil
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(w.dir.Fd()), &stat); err != nil {
		return err
	}
	if stat.Files != 0 && int64(stat.Files-stat.Ffree) >= w.limits.Files {
		return refuse(wire.ErrorCodeTooManyFiles,
			"would be one file too many: the limit is %d; delete something first", w.limits.Files)
	}
	return nil
}

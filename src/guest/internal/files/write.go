package files

import (
	"crypto/rand"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

var buffers = sync.Pool{New: func() any { return make([]byte, wire.MaxDataBytes) }}

// Write makes or replaces a file. The new content is complete or the old one stays: it is written to a
// hidden file in the same directory, which then takes the name. When the name is a link, the link stays
// and the file it leads to is replaced. io.EOF from body means that all of it came; any other error of
// body aborts and is returned as it is. Directories that were made on the way stay in any case.
func (w *Workspace) Write(req wire.FileWrite, body io.Reader) (_ wire.FileEntry, err error) {
	defer func() { err = w.explain("write", req.Path, err) }()
	name, err := w.name(req.Path)
	if err != nil {
		return wire.FileEntry{}, err
	}
	if name == "." || strings.HasSuffix(req.Path, "/") {
		return wire.FileEntry{}, unix.EISDIR
	}
	if req.Mode != nil && (*req.Mode < 0 || *req.Mode > 0o7777) {
		return wire.FileEntry{}, refuse(wire.ErrorCodeInvalidRequest, "cannot have the mode %#o; give permission bits, such as 0644", *req.Mode)
	}
	target, err := w.findOrMake(name, true)
	if err != nil {
		return wire.FileEntry{}, err
	}
	defer target.dir.Close()
	mode := uint32(0o644)
	if target.exists {
		if err := regular(target.kind()); err != nil {
			return wire.FileEntry{}, err
		}
		if !req.Overwrite { // commit would say so too, but only after the whole body
			return wire.FileEntry{}, unix.EEXIST
		}
		mode = target.stat.Mode
	} else if err := w.roomForFile(); err != nil {
		return wire.FileEntry{}, err
	}
	if req.Mode != nil {
		mode = uint32(*req.Mode)
	}
	stat, err := w.replace(target, body, mode&0o777, req.Overwrite)
	if err != nil {
		return wire.FileEntry{}, err
	}
	return entry(name, &stat), nil
}

// replace writes the hidden file and gives it the target's name.
func (w *Workspace) replace(target place, body io.Reader, mode uint32, overwrite bool) (stat unix.Stat_t, err error) {
	dir := int(target.dir.Fd())
	hidden := hiddenName()
	fd, err := unix.Openat(dir, hidden, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return stat, err
	}
	file := os.NewFile(uintptr(fd), hidden)
	defer func() {
		file.Close()
		if err != nil {
			unix.Unlinkat(dir, hidden, 0)
		}
	}()
	if err := w.fill(file, body); err != nil {
		return stat, err
	}
	// by the descriptor, since the umask does not apply to what the caller asked for
	if err := unix.Fchmod(fd, mode); err != nil {
		return stat, err
	}
	if err := unix.Fstat(fd, &stat); err != nil {
		return stat, err
	}
	// quotas and network file systems tell here that a write did not fit
	if err := file.Close(); err != nil {
		return stat, err
	}
	return stat, unix.Renameat2(dir, hidden, dir, target.base, noReplace(overwrite))
}

func (w *Workspace) fill(file *os.File, body io.Reader) error {
	buffer := buffers.Get().([]byte)
	defer buffers.Put(buffer)
	for size := int64(0); ; {
		count, readErr := body.Read(buffer)
		size += int64(count)
		if w.limits.FileBytes > 0 && size > w.limits.FileBytes {
			return refuse(wire.ErrorCodeFileTooLarge, "is larger than a file may be, which is %d bytes", w.limits.FileBytes)
		}
		if _, err := file.Write(buffer[:count]); err != nil {
			return err
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return theirs{readErr}
		}
	}
}

func hiddenName() string { return ".holdfast-" + rand.Text() + ".part" }

// noReplace is the flag with which the kernel refuses to rename onto something, without a gap in between.
func noReplace(overwrite bool) uint {
	if overwrite {
		return 0
	}
	return unix.RENAME_NOREPLACE
}

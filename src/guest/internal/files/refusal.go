package files

import (
	"errors"
	"fmt"
	"syscall"

	"holdfast/guest/internal/wire"
)

// refusal is why something was not done: words that follow `cannot read "x": it`.
type refusal struct {
	code   wire.ErrorCode
	reason string
}

func (r refusal) Error() string { return r.reason }

func refuse(code wire.ErrorCode, format string, arguments ...any) error {
	return refusal{code, fmt.Sprintf(format, arguments...)}
}

// theirs is an error of the caller's own reader, writer or callback; it goes back as it came.
type theirs struct{ error }

var outside = refusal{wire.ErrorCodePathNotAllowed,
	"is outside the workspace, or leads there; use a path beneath the workspace"}

// refusals says what the kernel's answers mean to a caller.
var refusals = map[syscall.Errno]refusal{
	syscall.ENOENT:       {wire.ErrorCodeNotFound, "does not exist"},
	syscall.EEXIST:       {wire.ErrorCodeAlreadyExists, "exists already; allow overwriting, or choose another name"},
	syscall.EISDIR:       {wire.ErrorCodeIsADirectory, "is a directory; name a file"},
	syscall.ENOTDIR:      {wire.ErrorCodeNotADirectory, "is not a directory, or one of its parents is not"},
	syscall.ENOTEMPTY:    {wire.ErrorCodeDirectoryNotEmpty, "is a directory with something in it; delete that recursively"},
	syscall.ENAMETOOLONG: {wire.ErrorCodeNameTooLong, "is too long; a path may have 4096 bytes, each name in it 255"},
	syscall.ELOOP:        {wire.ErrorCodeSymlinkLoop, "leads through too many symbolic links, or a loop of them"},
	syscall.ENXIO:        {wire.ErrorCodeNotRegularFile, "is not a regular file; only those are read and written"},
	syscall.ENODEV:       {wire.ErrorCodeNotRegularFile, "is not a regular file; only those are read and written"},
	syscall.ENOSPC:       {wire.ErrorCodeWorkspaceFull, "does not fit: the workspace is full; delete something first"},
	syscall.EDQUOT:       {wire.ErrorCodeWorkspaceFull, "does not fit: the workspace is full; delete something first"},
	syscall.EFBIG:        {wire.ErrorCodeFileTooLarge, "is larger than a file may be"},
	syscall.EACCES:       {wire.ErrorCodePermissionDenied, "is closed to the sandbox's user; change its mode first"},
	syscall.EPERM:        {wire.ErrorCodePermissionDenied, "is closed to the sandbox's user"},
	syscall.EROFS:        {wire.ErrorCodePermissionDenied, "is on a read-only file system"},
	syscall.EBUSY:        {wire.ErrorCodePermissionDenied, "is in use by the sandbox itself"},
	syscall.EXDEV:        {wire.ErrorCodePermissionDenied, "is on another file system than its destination; copy it instead"},
	syscall.EINVAL:       {wire.ErrorCodeInvalidRequest, "is not possible: a directory cannot go into itself, and the file system has to accept the name"},
}

// explain turns the error of a request into the Failure that the host gets.
func (w *Workspace) explain(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	var caller theirs
	if errors.As(err, &caller) {
		return caller.error
	}
	var errno syscall.Errno
	reason := refusal{wire.ErrorCodeInternal, "failed: " + err.Error()}
	switch {
	case errors.As(err, &reason):
	case errors.Is(err, w.escapes):
		reason = outside
	case errors.As(err, &errno):
		if known, ok := refusals[errno]; ok {
			reason = known
		}
	}
	if name, err := wire.FromWire(path); err == nil {
		path = name
	}
	if len(path) > 200 { // or it would hide the reason
		path = path[:200] + "..."
	}
	return wire.Fail(reason.code, "cannot %s %q: it %s", verb, path, reason.reason)
}

package job

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"holdfast/guest/internal/files"
	"holdfast/guest/internal/wire"
)

// place writes the code and the files into the workspace, as the server would for a host that sends them. It is done
// while we are root, who may read all of the files, and before there is a program that could interfere.
func (s *Spec) place(from string, user *int64) error {
	if err := os.MkdirAll(s.Workspace, 0o755); err != nil {
		return err
	}
	var limits files.Limits
	if s.Limits.MaxFileSizeBytes != nil {
		limits.FileBytes = *s.Limits.MaxFileSizeBytes
	}
	if s.Limits.MaxFiles != nil {
		limits.Files = *s.Limits.MaxFiles
	}
	workspace, err := files.Open(s.Workspace, limits)
	if err != nil {
		return err
	}
	defer workspace.Close()
	if _, err := workspace.Write(wire.FileWrite{Path: wire.ToWire(s.Script)}, strings.NewReader(s.text)); err != nil {
		return err
	}
	source, err := os.OpenRoot(from)
	if err == nil {
		defer source.Close()
		err = fs.WalkDir(source.FS(), ".", func(name string, found fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return err
			}
			if path.Clean(name) == path.Clean(s.Script) {
				return refuse("the code itself is written to %s; give your file another name", s.Script)
			}
			return s.placeOne(workspace, source, name, found)
		})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return give(s.Workspace, user)
}

// placeOne keeps the permissions of a file, and a link as it is: where it leads is the program's business.
func (s *Spec) placeOne(workspace *files.Workspace, source *os.Root, name string, found fs.DirEntry) error {
	switch found.Type() {
	case fs.ModeDir:
		_, err := workspace.Mkdir(wire.FileMkdir{Path: wire.ToWire(name)})
		return err
	case fs.ModeSymlink:
		target, err := source.Readlink(name)
		if err != nil {
			return err
		}
		return os.Symlink(target, filepath.Join(s.Workspace, name))
	case 0:
		file, err := source.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		stat, err := file.Stat()
		if err != nil {
			return err
		}
		mode := int64(stat.Mode().Perm() | 0o400)
		_, err = workspace.Write(wire.FileWrite{Path: wire.ToWire(name), Mode: &mode}, file)
		return err
	default:
		return refuse("%q is neither a file, nor a folder, nor a link", name)
	}
}

// give makes the program's user the owner of all that is in a folder.
func give(folder string, user *int64) error {
	if user == nil {
		return nil
	}
	return filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, int(*user), int(*user))
	})
}

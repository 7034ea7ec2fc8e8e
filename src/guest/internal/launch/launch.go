// Package launch is what the guest does on the host, before there is a sandbox: it stands before bubblewrap, which it
// becomes, in a mount namespace of its own.
package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// plan is the argument of `guest launch`; bubblewrap.py writes it.
type plan struct {
	Unshare bool     // leave the host's mount namespace; else unshare did it, since users need a user namespace too
	Join    []string // cgroup files that take a process in
	Mount   string   // folder for the sandbox's one tmpfs
	Options string   // of the tmpfs
	Folders []string // in the tmpfs
	Owner   *int     // uid and gid of the folders
	Command []string // bubblewrap, by its path
}

// Launch only returns if it fails.
func Launch(argument string) error {
	// A cgroup of version 1 takes in the thread that asks, and so does a namespace: it must be the one that becomes
	// bubblewrap.
	runtime.LockOSThread()
	var p plan
	if err := json.Unmarshal([]byte(argument), &p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if p.Unshare {
		if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
			return fmt.Errorf("a mount namespace cannot be had: %w", err)
		}
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("mounts cannot be made private: %w", err)
		}
	}
	for _, file := range p.Join {
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return fmt.Errorf("the cgroup cannot be joined: %w", err)
		}
	}
	if err := syscall.Mount("holdfast", p.Mount, "tmpfs", 0, p.Options); err != nil {
		return fmt.Errorf("the sandbox's tmpfs cannot be mounted at %s: %w", p.Mount, err)
	}
	for _, name := range p.Folders {
		path := filepath.Join(p.Mount, name)
		err := os.Mkdir(path, 0o700)
		if err == nil && p.Owner != nil {
			err = os.Chown(path, *p.Owner, *p.Owner)
		}
		if err == nil {
			err = os.Chmod(path, 0o700) // whatever the caller's umask is
		}
		if err != nil {
			return err
		}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", p.Command[0], syscall.Exec(p.Command[0], p.Command, os.Environ()))
}

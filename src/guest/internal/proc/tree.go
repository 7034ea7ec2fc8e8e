package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one line of the process table. Pid and start time together are never used twice.
type process struct {
	pid, parent, group int
	start              uint64
	state              byte
	name               string
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// readProcess reads /proc/PID/stat; the name may hold anything, blanks and brackets too.
func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	open, shut := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || shut < open {
		return process{}, false
	}
	fields := strings.Fields(string(raw[shut+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	group, _ := strconv.Atoi(fields[2])
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, parent, group, start, fields[0][0], string(raw[open+1 : shut])}, true
}

// descendants lists the living processes beneath root, without those beneath and including a spared pid.
func descendants(root int, spared func(pid int) bool) []process {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	children := make(map[int][]process)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			if spared != nil && spared(child.pid) {
				continue
			}
			queue = append(queue, child.pid)
			if !child.dead() {
				found = append(found, child)
			}
		}
	}
	return found
}

// send signals a process if it is still the one that was seen: through a pidfd, so that a pid
// which was given to somebody else in the meantime is left alone.
func send(p process, signal syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		if err == unix.ESRCH {
			return
		}
		fd = -1 // an old kernel or a strict outer filter: the start time alone must do
	} else {
		defer unix.Close(fd)
	}
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return
	}
	if fd < 0 || unix.PidfdSendSignal(fd, signal, nil, 0) == unix.ENOSYS {
		_ = unix.Kill(p.pid, signal)
	}
}

// killTree ends every process beneath root, whatever it did to get away, and returns those that it met. It gives up at
// the deadline.
//
// A chain that re-forks for ever is faster than any list of it: what is listed has died, and its child is not listed
// yet. But the child is in its parent's process group until it leaves it, and a whole group is killed at once. A group
// never reaches beyond its exec, since every program starts in a session of its own. For the same reason a list without
// anybody on it proves nothing: it counts when confirm says so.
func killTree(root int, spared func(pid int) bool, confirm func() bool, deadline time.Time) (met []process, all bool) {
	seen := make(map[uint64]bool)
	own := unix.Getpgrp()
	for {
		alive := descendants(root, spared)
		if len(alive) == 0 && confirm() {
			return met, true
		}
		if time.Now().After(deadline) {
			return met, false
		}
		fresh := false
		for _, p := range alive {
			if p.group > 1 && p.group != own && p.group != root {
				_ = unix.Kill(-p.group, unix.SIGKILL)
			}
			send(p, unix.SIGKILL)
			if id := uint64(p.pid)<<40 ^ p.start; !seen[id] {
				seen[id], fresh = true, true
				met = append(met, p)
			}
		}
		if !fresh {
			time.Sleep(time.Millisecond) // they are reaped elsewhere
		}
	}
}

// signalTree delivers a signal once to every process beneath root.
func signalTree(root int, signal syscall.Signal) {
	for _, p := range descendants(root, nil) {
		send(p, signal)
	}
}

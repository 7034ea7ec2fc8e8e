package server

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// isTenant tells a program of the sandbox from a host that came in by the engine's own door (`docker exec`).
// Everything that we ever started has us as an ancestor, and keeps us as one when its parents die. What the engine
// puts into the sandbox has no parent here (PPid 0), and a host outside has no pid here at all.
func isTenant(accepted net.Conn) bool {
	raw, err := accepted.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return true
	}
	if peer.Pid == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(peer.Pid)) + "/status")
	if err != nil {
		return true
	}
	_, rest, found := bytes.Cut(status, []byte("\nPPid:\t"))
	parent, _, _ := strings.Cut(string(rest), "\n")
	return !found || parent != "0"
}

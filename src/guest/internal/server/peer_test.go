package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// serve starts a guest as PID 1 of a pid namespace of its own, as an engine does.
func serve(t *testing.T) (socket string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a pid namespace here")
	}
	workspace := t.TempDir()
	socket = filepath.Join(workspace, "s")
	lifetime := int64(60_000)
	config, err := json.Marshal(wire.GuestConfig{
		Workspace: workspace, Socket: &socket, MaxLifetimeMS: &lifetime, Env: map[string]string{"PATH": "/usr/bin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	guest := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", self, "serve", string(config))
	guest.Stderr = os.Stderr
	if err := guest.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = guest.Process.Kill(); _ = guest.Wait() })
	return socket
}

// hostOf connects to a guest's socket as a host, which is outside and has no pid there.
func hostOf(t *testing.T, socket string) *host {
	t.Helper()
	fd, err := connect(socket, time.Now().Add(20*time.Second))
	if err != nil {
		t.Skip("the guest does not come up: ", err)
	}
	file := os.NewFile(uintptr(fd), socket)
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := &host{t: t, conn: conn.(*net.UnixConn)}
	h.say(0, wire.HostHello{Protocol: wire.Protocol, Window: 1 << 20, OnEof: wire.OnEofFinish})
	var hello wire.GuestHello
	h.answer(0, &hello)
	return h
}

func TestTenantsAreTurnedAwayAndHostsAreNot(t *testing.T) {
	socket := serve(t)
	h := hostOf(t, socket)
	self, _ := os.Executable()
	hello, err := wire.Message(0, wire.KindMessage, wire.HostHello{Protocol: wire.Protocol, Window: 1, OnEof: wire.OnEofFinish})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(socket), "hello"), wire.AppendFrame(nil, hello), 0o644); err != nil {
		t.Fatal(err)
	}
	// A program, and one that has lost its parents, dial as an engine would.
	for stream, line := range []string{self + " dial " + socket + " < hello", "(setsid sh -c '" + self + " dial " + socket + " < hello > late; touch done' &); sleep 1; cat late"} {
		h.say(uint32(stream+1), shell(line+" | wc -c"))
		var ended wire.ExecEnded
		data := h.answer(uint32(stream+1), &ended)
		if ended.ExitCode == nil || *ended.ExitCode != 0 || data != len("0\n") {
			t.Errorf("%s: a tenant heard something, or nothing was tried: %d bytes, %+v", line, data, ended)
		}
	}
}

func TestDialJoinsFilesToAGuest(t *testing.T) {
	socket := serve(t)
	hostOf(t, socket)
	var said bytes.Buffer
	for stream, message := range []any{
		wire.HostHello{Protocol: wire.Protocol, Window: 1 << 20, OnEof: wire.OnEofFinish}, shell("echo dialled"),
	} {
		frame, err := wire.Message(uint32(stream), wire.KindMessage, message)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(wire.AppendFrame(nil, frame))
	}
	input, mouth := pipe(t)
	ear, output := pipe(t)
	go func() {
		_, _ = mouth.Write(said.Bytes())
		mouth.Close()
	}()
	heard := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(ear)
		heard <- data
	}()
	err := Dial(socket, input, output)
	output.Close()
	answer := <-heard
	if err != nil || !bytes.Contains(answer, []byte("dialled\n")) || !bytes.Contains(answer, []byte(`"exit_code":0`)) {
		t.Fatalf("%v: %q", err, answer)
	}
}

// Both ends of a pipe are much smaller than what goes through them, and each waits for the other.
func TestDialMovesMoreThanAnybodyBuffers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	input, mouth := pipe(t)
	ear, output := pipe(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	go func() {
		_, _ = mouth.Write(want)
		mouth.Close()
	}()
	go func() {
		_ = Dial(socket, input, output)
		output.Close()
	}()
	if got, err := io.ReadAll(ear); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v: %d bytes of %d", err, len(got), len(want))
	}
}

func TestDialGivesUpOnAGuestThatNeverListens(t *testing.T) {
	input, _ := pipe(t)
	_, output := pipe(t)
	if err := Dial(filepath.Join(t.TempDir(), "nobody"), input, output); !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
}

func pipe(t *testing.T) (*os.File, *os.File) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

// Our own parent is not 0, so to a guest in this namespace we are a tenant.
func TestWhoeverHasAParentHereIsATenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if !isTenant(accepted) {
		t.Fatal("it was let in")
	}
}

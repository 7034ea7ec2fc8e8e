package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/wire"
)

// Supervisors, and guests that need a process of their own, are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "supervise" || os.Args[1] == "serve" || os.Args[1] == "dial") {
		if err := again(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if used.Load() {
		shared().pool.KillAll()
	}
	os.Exit(code)
}

func again(command, argument string) error {
	if command == "dial" {
		return Dial(argument, os.Stdin, os.Stdout)
	}
	var config wire.GuestConfig
	if err := json.Unmarshal([]byte(argument), &config); err != nil {
		return err
	}
	proc.Hold(2)
	if command == "supervise" {
		return proc.Supervise(func() error { return nil })
	}
	guest, err := New(config, []string{"supervise", argument})
	if err != nil {
		return err
	}
	return guest.Listen()
}

var used atomic.Bool

// shared is the one server of this process: its pool kills every child that is not its own.
var shared = sync.OnceValue(func() *Server {
	used.Store(true)
	workspace, err := os.MkdirTemp("", "server-test")
	if err != nil {
		panic(err)
	}
	config := wire.GuestConfig{Workspace: workspace, Env: map[string]string{"PATH": "/usr/bin:/bin"}}
	guest, err := New(config, []string{"supervise", "{}"})
	if err != nil {
		panic(err)
	}
	return guest
})

// host is the other end of a connection.
type host struct {
	t      testing.TB
	conn   *net.UnixConn
	served chan error
}

func pair(t testing.TB) (ours, theirs *net.UnixConn) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for index, fd := range ends {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[index] = conn.(*net.UnixConn)
		t.Cleanup(func() { conn.Close() })
	}
	return conns[0], conns[1]
}

// connectRaw makes a connection to the shared server, without a hello.
func connectRaw(t testing.TB) *host {
	ours, theirs := pair(t)
	h := &host{t, ours, make(chan error, 1)}
	go func() { h.served <- newConn(shared(), theirs, theirs, theirs).serve(context.Background()) }()
	return h
}

func greeted(t testing.TB, onEOF wire.OnEof, window int64) *host {
	h := connectRaw(t)
	h.say(0, wire.HostHello{Protocol: wire.Protocol, Window: window, OnEof: onEOF})
	var hello wire.GuestHello
	h.answer(0, &hello)
	if hello.Protocol != wire.Protocol || hello.Window != wire.WindowBytes || hello.Features == nil {
		t.Fatalf("%+v", hello)
	}
	return h
}

func (h *host) raw(raw []byte) {
	h.t.Helper()
	_ = h.conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	if _, err := h.conn.Write(raw); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) send(stream uint32, kind wire.Kind, payload []byte) {
	h.t.Helper()
	h.raw(wire.AppendFrame(nil, wire.Frame{Stream: stream, Kind: kind, Payload: payload}))
}

func (h *host) say(stream uint32, message any) {
	h.t.Helper()
	frame, err := wire.Message(stream, wire.KindMessage, message)
	if err != nil {
		h.t.Fatal(err)
	}
	h.raw(wire.AppendFrame(nil, frame))
}

func (h *host) grant(stream uint32, bytes uint32) {
	h.t.Helper()
	h.send(stream, wire.KindWindow, binary.BigEndian.AppendUint32(nil, bytes))
}

// next is the next frame, or an error at the end.
func (h *host) next() (wire.Frame, error) {
	_ = h.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	return wire.ReadFrame(h.conn)
}

func (h *host) frame() wire.Frame {
	h.t.Helper()
	frame, err := h.next()
	if err != nil {
		h.t.Fatal(err)
	}
	return frame
}

// answer skips to the reply of a stream, granting no credit, and returns the bytes of DATA on the way.
func (h *host) answer(stream uint32, into any) (data int) {
	h.t.Helper()
	for {
		frame := h.frame()
		switch {
		case frame.Stream == stream && frame.Kind == wire.KindMessage:
			if err := json.Unmarshal(frame.Payload, into); err != nil {
				h.t.Fatalf("%s: %v", frame.Payload, err)
			}
			return data
		case frame.Stream == stream && frame.Kind == wire.KindData:
			data += len(frame.Payload)
		}
	}
}

// ends waits for the end of the connection and returns what serve said.
func (h *host) ends() error {
	h.t.Helper()
	select {
	case err := <-h.served:
		return err
	case <-time.After(20 * time.Second):
		h.t.Fatal("the connection does not end")
		return nil
	}
}

func (h *host) silent(stream uint32, what string) {
	h.t.Helper()
	_ = h.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if frame, err := wire.ReadFrame(h.conn); err == nil || err == io.EOF {
		h.t.Fatalf("%s: %v %v", what, frame, err)
	}
}

func shell(line string) wire.ExecRequest {
	timeout := int64(30_000)
	return wire.ExecRequest{
		Op: wire.OpExecRequest, Shell: &line, Env: map[string]string{}, Stdin: wire.StdinModeNone, TimeoutMS: &timeout,
		StdoutCapBytes: 8 << 20, StderrCapBytes: 1 << 16, Background: wire.BackgroundKill, Delivery: wire.DeliveryResult,
	}
}

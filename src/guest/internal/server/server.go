package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/files"
	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/wire"
)

// Server is the guest of one sandbox.
type Server struct {
	config wire.GuestConfig
	execs  *proc.Registry
	pool   *proc.Pool
	files  *files.Workspace
	clock  *clock
	proof  *string      // what the end of a run repeats
	calls  atomic.Int64 // in progress, of those that keep a session alive

	mu    sync.Mutex
	conns int
}

// New makes a server; arguments start a supervisor.
func New(config wire.GuestConfig, arguments []string) (*Server, error) {
	var limits files.Limits
	if config.Limits.FileBytes != nil {
		limits.FileBytes = *config.Limits.FileBytes
	}
	if config.Limits.Files != nil {
		limits.Files = *config.Limits.Files
	}
	workspace, err := files.Open(config.Workspace, limits)
	if err != nil {
		return nil, err
	}
	if config.ListenFD != nil {
		// Before the first supervisor: what inherits the listener can answer hosts in our place.
		syscall.CloseOnExec(int(*config.ListenFD))
	}
	s := &Server{config: config, files: workspace, pool: proc.NewPool(arguments), clock: newClock(config)}
	s.execs = proc.NewRegistry(config, s.pool, s.touch)
	return s, nil
}

// Listen serves a session until its clock or a Shutdown ends it.
func (s *Server) Listen() error {
	listener, isTenant, err := s.listener()
	if err != nil {
		return err
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.accept(ctx, listener, isTenant)
	// A reader that takes its time over the output of a program that has ended still uses the session.
	s.clock.wait(func() int { return s.execs.Running() + int(s.calls.Load()) })
	// Everything dies, with us as PID 1 at the latest. The replies of what dies now, and of a Shutdown, leave meanwhile.
	s.pool.KillAll()
	time.Sleep(10 * time.Millisecond)
	return nil
}

func (s *Server) accept(ctx context.Context, listener net.Listener, isTenant func(net.Conn) bool) {
	for {
		accepted, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of files, say: it passes, and the session must not end by it
			continue
		}
		if isTenant(accepted) {
			accepted.Close()
			continue
		}
		go func() {
			defer accepted.Close()
			s.count(1)
			defer s.count(-1)
			if stream, err := quickly(accepted); err == nil {
				_ = newConn(s, stream, stream, accepted).serve(ctx)
			}
		}()
	}
}

// Serve serves one host over two files beside those that come by the socket, as long as it is there.
func (s *Server) Serve(input, output *os.File) {
	s.count(1)
	defer s.count(-1)
	err := newConn(s, input, output, nil).serve(context.Background())
	if err != nil && !errors.Is(err, io.EOF) {
		// A container's stdout ends with the container, for those who listen: the host has to be told.
		_, _ = output.Write(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindReset}))
	}
	leave(input)
	leave(output)
}

// leave ends what a file leads to. Its number stays taken: what has 0 or 1 is special to those that we start.
func leave(file *os.File) {
	nowhere, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(nowhere)
	_ = unix.Dup3(nowhere, int(file.Fd()), 0)
}

// RunOnce serves one host over two files, and ends with it.
func (s *Server) RunOnce(input io.ReadCloser, output io.Writer) error {
	return s.serveOne(newConn(s, input, output, nil))
}

func (s *Server) serveOne(host *conn) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- host.serve(ctx) }()
	go func() {
		s.clock.wait(func() int { return 1 })
		finished <- errors.New("the sandbox's maximal lifetime is over")
	}()
	err := <-finished
	if os.Getpid() != 1 { // of a PID 1 the kernel kills all the rest, and faster
		s.pool.KillAll()
	}
	return err
}

// listener is the inherited socket, which tenants cannot see, or one in the sandbox, from which they are turned away.
func (s *Server) listener() (net.Listener, func(net.Conn) bool, error) {
	if s.config.ListenFD != nil {
		file := os.NewFile(uintptr(*s.config.ListenFD), "listener")
		defer file.Close()
		listener, err := net.FileListener(file)
		return listener, func(net.Conn) bool { return false }, err
	}
	if s.config.Socket == nil {
		return nil, nil, errors.New("config has neither socket nor listen_fd")
	}
	listener, err := net.Listen("unix", *s.config.Socket)
	if err != nil {
		return nil, nil, err
	}
	// The engine may come in as another user of our group, whom tenants cannot send signals to.
	return listener, isTenant, os.Chmod(*s.config.Socket, 0o660)
}

func (s *Server) hello() wire.GuestHello {
	features := []wire.Feature{}
	if proc.CanSwitchUser() {
		features = append(features, wire.FeatureUserSwitch)
	}
	if s.config.MemoryEvents != nil {
		features = append(features, wire.FeatureOomReport)
	}
	if s.config.PidsEvents != nil {
		features = append(features, wire.FeaturePidsReport)
	}
	return wire.GuestHello{
		Protocol: wire.Protocol, Window: wire.WindowBytes, Features: features,
		Workspace: s.config.Workspace, Arch: runtime.GOARCH,
	}
}

func (s *Server) touch() { s.clock.touch() }

func (s *Server) count(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns += by
}

func (s *Server) status() (wire.StatusReport, error) {
	total, free, freeFiles, err := s.files.Space()
	s.mu.Lock()
	defer s.mu.Unlock()
	report := wire.StatusReport{
		Type: wire.TypeStatusReport, RunningExecs: int64(s.execs.Running()), Connections: int64(s.conns),
		WorkspaceTotalBytes: total, WorkspaceFreeBytes: free, WorkspaceFreeFiles: freeFiles,
	}
	s.clock.report(&report)
	return report, err
}

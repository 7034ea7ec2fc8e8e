// Package server answers the host: many calls over one byte stream, each on a stream of its own.
package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"holdfast/guest/internal/wire"
)

// conn is one connection of a host.
type conn struct {
	server *Server
	reader *bufio.Reader
	output io.Writer
	closer io.Closer
	onEOF  wire.OnEof
	window int64 // credit that each stream towards the host starts with
	replay bool  // the host has said all, and gives no credit

	writing sync.Mutex
	buffer  []byte

	mu      sync.Mutex
	streams map[uint32]*stream
	last    uint32 // highest stream that was opened
	calls   sync.WaitGroup
}

func newConn(server *Server, input io.Reader, output io.Writer, closer io.Closer) *conn {
	return &conn{
		server: server, reader: bufio.NewReaderSize(input, 64<<10), output: output, closer: closer,
		streams: make(map[uint32]*stream),
	}
}

// serve reads frames until the host is gone, breaks the protocol, or the guest ends.
func (c *conn) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.greet(); err != nil {
		return err
	}
	err := c.read(ctx)
	if errors.Is(err, io.EOF) {
		err = nil
		if c.onEOF == wire.OnEofFinish {
			c.endInputs()
			c.calls.Wait()
		}
	}
	cancel()
	c.abort()
	c.calls.Wait()
	return err
}

// greet exchanges the hellos. A host of another protocol gets ours, so that it can say which guest it met.
func (c *conn) greet() error {
	frame, err := wire.ReadFrame(c.reader)
	if err != nil {
		return err
	}
	var hello wire.HostHello
	if frame.Stream != 0 || frame.Kind != wire.KindMessage || json.Unmarshal(frame.Payload, &hello) != nil {
		return errors.New("the first frame is not a hello")
	}
	c.onEOF, c.window = hello.OnEof, hello.Window
	if err := c.message(0, c.server.hello()); err != nil {
		return err
	}
	if hello.Protocol != wire.Protocol {
		return fmt.Errorf("the host speaks protocol %d, this guest %d", hello.Protocol, wire.Protocol)
	}
	return nil
}

func (c *conn) read(ctx context.Context) error {
	for {
		frame, err := wire.ReadFrame(c.reader)
		if err != nil {
			return err
		}
		if frame.Kind != wire.KindMessage { // of requests, `answer` knows which are use
			c.server.touch()
		}
		if err := c.dispatch(ctx, frame); err != nil {
			return err
		}
	}
}

func (c *conn) dispatch(ctx context.Context, frame wire.Frame) error {
	c.mu.Lock()
	found := c.streams[frame.Stream]
	c.mu.Unlock()
	if frame.Kind == wire.KindMessage {
		return c.open(ctx, frame)
	}
	if found == nil {
		// The call has been answered while this frame was on its way; only streams of the future are an error.
		if frame.Stream > c.last {
			return fmt.Errorf("frame for stream %d, which was never opened", frame.Stream)
		}
		return nil
	}
	switch frame.Kind {
	case wire.KindData:
		return found.receive(frame.Payload)
	case wire.KindEnd:
		found.endInput()
	case wire.KindWindow:
		found.grant(int64(binary.BigEndian.Uint32(frame.Payload)))
	case wire.KindReset:
		found.cancel()
		found.abort()
	default:
		return fmt.Errorf("frame of kind %d from the host", frame.Kind)
	}
	return nil
}

// open starts the call that a message asks for.
func (c *conn) open(ctx context.Context, frame wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if frame.Stream <= c.last {
		return fmt.Errorf("stream %d is not new", frame.Stream)
	}
	if len(c.streams) >= wire.MaxStreams {
		return fmt.Errorf("more than %d calls at once", wire.MaxStreams)
	}
	c.last = frame.Stream
	opened := newStream(ctx, c, frame.Stream)
	c.streams[frame.Stream] = opened
	c.calls.Add(1)
	go func() {
		defer c.calls.Done()
		defer opened.cancel()
		reply := c.server.answer(opened, frame.Payload)
		opened.abort() // what is still to come for it is for nobody
		c.mu.Lock()
		delete(c.streams, frame.Stream)
		c.mu.Unlock()
		_ = c.message(frame.Stream, reply)
	}()
	return nil
}

// message sends a reply; what cannot be sent is answered too, or the host would wait for ever.
func (c *conn) message(stream uint32, message any) error {
	frame, err := wire.Message(stream, wire.KindMessage, message)
	if err != nil {
		frame, _ = wire.Message(stream, wire.KindMessage, failure(err))
	}
	return c.send(frame)
}

// send writes one frame; frames of different calls do not mix.
func (c *conn) send(frame wire.Frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.buffer = wire.AppendFrame(c.buffer[:0], frame)
	_, err := c.output.Write(c.buffer)
	return err
}

func (c *conn) each(visit func(*stream)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		visit(s)
	}
}

func (c *conn) endInputs() { c.each(func(s *stream) { s.endInput() }) }

// abort ends every call: nobody is there to read the answers.
func (c *conn) abort() {
	c.each(func(s *stream) { s.abort() })
	if c.closer != nil {
		c.closer.Close()
	}
}

package server

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

const dialPatience = 5 * time.Second

// Dial joins two files to a serving guest's socket, until the guest ends.
func Dial(socket string, input io.Reader, output io.Writer) error {
	conn, err := connect(socket, time.Now().Add(dialPatience))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, input)
		_ = conn.(*net.UnixConn).CloseWrite() // the host said all; the answers may still be coming
	}()
	if _, err = io.Copy(output, conn); errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// connect waits for a guest that has just been started and does not listen yet.
func connect(socket string, deadline time.Time) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

package server

import (
	"errors"
	"io"
	"net"
	"os"
)

// Dial joins two files to a serving guest's socket, until the guest ends.
func Dial(socket string, input io.Reader, output io.Writer) error {
	conn, err := net.Dial("unix", socket)
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

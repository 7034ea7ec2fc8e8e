// Package proc runs programs so that nothing of them survives their end.
//
//	guest (PID 1) ── one supervisor for each exec ── the program ── whatever it starts
//
// A supervisor is the guest again, as a child subreaper: a process that loses its parent (setsid, nohup, double
// fork) becomes the supervisor's child, so an exec's processes are always exactly what is beneath its supervisor.
// If a program manages to kill its supervisor, its processes fall to PID 1, which owns nothing but supervisors
// and therefore kills every other child that it finds. A supervisor that is left without children is used again:
// a warm one makes an exec cost what a fork costs.
package proc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// order is what the guest tells a supervisor: a job with its three files, or a signal for it.
type order struct {
	Job    *job `json:",omitempty"`
	Signal int  `json:",omitempty"`
	// Number of the job that the signal is meant for: it may have ended while the order was on its way,
	// and the supervisor may work for another exec by now.
	Number int `json:",omitempty"`
}

// job is a program to start; everything is resolved already.
type job struct {
	Number     int
	Path       string
	Argv, Env  [][]byte // bytes: JSON strings would not keep what is not UTF-8
	Cwd        string
	Credential *syscall.Credential
	Keep       bool // let processes that the program leaves behind live on
}

// report is what a supervisor tells the guest: failed or refused; or started, if it takes a while, and ended.
type report struct {
	Started bool          `json:",omitempty"`
	Failed  syscall.Errno `json:",omitempty"`
	Refused string        `json:",omitempty"`
	Ended   *ending       `json:",omitempty"`
}

type ending struct {
	Status    syscall.WaitStatus
	CPUMicros int64
	PeakBytes int64
	LeftCount int64
	Left      []wire.LeftProcess
}

const maxOrderBytes = 2 * wire.MaxMessageBytes

// channel is the socket between the guest and one supervisor.
type channel struct{ conn *net.UnixConn }

func (c channel) send(message any, files ...int) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	sent, _, err := c.conn.WriteMsgUnix(packet, rights, nil)
	if err != nil || sent == len(packet) {
		return err
	}
	_, err = c.conn.Write(packet[sent:])
	return err
}

// receive reads one message, and the files that came with it.
func (c channel) receive(message any) (files []int, err error) {
	var header [4]byte
	rights := make([]byte, unix.CmsgSpace(3*4))
	got, rightsLength, _, _, err := c.conn.ReadMsgUnix(header[:], rights)
	if err != nil {
		return nil, err
	}
	if got == 0 {
		return nil, io.EOF
	}
	if _, err := io.ReadFull(c.conn, header[got:]); err != nil {
		return nil, err
	}
	if rightsLength > 0 {
		if files, err = parseRights(rights[:rightsLength]); err != nil {
			return nil, err
		}
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > maxOrderBytes {
		return files, errors.New("message between guest and supervisor is too long")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, message)
}

func parseRights(raw []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(raw)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("unexpected control message"))
	}
	files, err := unix.ParseUnixRights(&messages[0])
	for _, file := range files {
		unix.CloseOnExec(file)
	}
	return files, err
}

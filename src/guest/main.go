// The guest: one static program inside every sandbox. It starts, feeds, watches and kills what runs there,
// and reads and writes files, for a host at the other end of one byte stream.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"holdfast/guest/internal/confine"
	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/server"
	"holdfast/guest/internal/wire"
)

const usage = `guest serve CONFIG       the sandbox's PID 1: serve hosts on a unix socket until the session's time is over
guest run CONFIG         serve one host on stdin and stdout, then exit
guest dial SOCKET        join stdin and stdout to a serving guest
CONFIG is the JSON of GuestConfig in protocol.py.
`

// Threads that the guest makes before it has tenants: enough for all that it does at once.
const (
	serverThreads     = 24
	supervisorThreads = 4
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(command, argument string) error {
	if command == "dial" {
		return server.Dial(argument, os.Stdin, os.Stdout)
	}
	var config wire.GuestConfig
	if err := json.Unmarshal([]byte(argument), &config); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if config.User != nil && command != "supervise" {
		if err := become(int(*config.User)); err != nil {
			return err
		}
	}
	// One at a time: what the guest does is short, and a second processor would be woken for each piece of it.
	runtime.GOMAXPROCS(1)
	if command == "supervise" {
		proc.OfferToOOM() // first: what is hardened may not write into its own /proc
	}
	if err := confine.Harden(); err != nil {
		return err
	}
	if command == "supervise" {
		proc.Hold(supervisorThreads)
		return proc.Supervise(os.Stdin, func() error { return confine.Apply(config.Limits, config.Network) })
	}
	proc.Hold(serverThreads)
	guest, err := server.New(config, []string{"supervise", argument})
	if err != nil {
		return err
	}
	switch command {
	case "serve":
		return guest.Listen()
	case "run":
		return guest.RunOnce(os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

// become leaves root for good. The kernel clears all capabilities of a process whose ids all leave 0.
func become(id int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return fmt.Errorf("setresgid %d: %w", id, err)
	}
	if err := syscall.Setresuid(id, id, id); err != nil {
		return fmt.Errorf("setresuid %d: %w", id, err)
	}
	return nil
}

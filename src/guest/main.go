// The guest: one static program inside every sandbox. It starts, feeds, watches and kills what runs there,
// and reads and writes files, for a host at the other end of one byte stream.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"holdfast/guest/internal/confine"
	"holdfast/guest/internal/fence"
	"holdfast/guest/internal/job"
	"holdfast/guest/internal/launch"
	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/server"
	"holdfast/guest/internal/wire"
)

const usage = `guest serve CONFIG       the sandbox's PID 1: serve hosts on a unix socket until the session's time is over
guest run CONFIG         serve one host on stdin and stdout, then exit
guest replay CONFIG      answer a host that has said all in advance, in a file, then exit
guest job FOLDER         do the run that spec.json in a folder describes, and leave its result there in files
guest dial SOCKET        join stdin and stdout to a serving guest
guest launch PLAN        on the host: make what a sandbox of the engine local needs, then become bubblewrap
guest fence PLAN         in a sandbox's network, before it has tenants: close what they may not reach
CONFIG is the JSON of GuestConfig in protocol.py, or "-": then it is the first frame on stdin, and whatever follows
there is a host that is served too.
`

// Threads that the guest makes before it has tenants: enough for all that it does at once.
const (
	serverThreads     = 24
	supervisorThreads = 4
	dialThreads       = 3
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
		return dial(argument)
	}
	if command == "launch" {
		return launch.Launch(argument)
	}
	if command == "fence" {
		return fence.Fence(argument)
	}
	var task *job.Job
	var config wire.GuestConfig
	var err error
	if command == "job" { // it is prepared while we are root
		if task, err = job.Open(argument); err != nil {
			return err
		}
		config = task.Config
	} else if config, err = configuration(argument); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	var recorded *recording
	if command == "replay" {
		if recorded, err = open(config); err != nil {
			return err
		}
	}
	if config.User != nil && command != "supervise" {
		if err := become(int(*config.User), config.Own); err != nil {
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
		return proc.Supervise(func() error { return confine.Apply(config.Limits, config.Network) })
	}
	proc.Hold(serverThreads)
	supervisor, err := json.Marshal(forSupervisors(config))
	if err != nil {
		return err
	}
	guest, err := server.New(config, []string{"supervise", string(supervisor)})
	if err != nil {
		return err
	}
	switch command {
	case "serve":
		if argument == "-" {
			go guest.Serve(os.Stdin, os.Stdout)
		}
		return guest.Listen()
	case "run":
		return guest.RunOnce(os.Stdin, os.Stdout)
	case "replay":
		return guest.Replay(recorded.request, recorded.answer, recorded.proof, os.Stdout)
	case "job":
		return task.Run(guest.RunOnce, os.Stdout)
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

func configuration(argument string) (config wire.GuestConfig, err error) {
	text := []byte(argument)
	if argument == "-" {
		frame, err := wire.ReadFrame(os.Stdin)
		if err != nil {
			return config, err
		}
		if frame.Stream != 0 || frame.Kind != wire.KindMessage {
			return config, errors.New("the first frame is something else")
		}
		text = frame.Payload
	}
	return config, json.Unmarshal(text, &config)
}

// forSupervisors is what a supervisor needs to know: everybody in the sandbox can read its arguments, and what is in
// the environment of programs is for programs.
func forSupervisors(config wire.GuestConfig) wire.GuestConfig {
	return wire.GuestConfig{
		Workspace: config.Workspace, Env: map[string]string{}, Limits: config.Limits, Network: config.Network,
	}
}

// recording is what a replay needs and its programs must not see: it is opened while we are root, and they are not.
type recording struct {
	request, answer *os.File
	proof           *string
}

func open(config wire.GuestConfig) (_ *recording, err error) {
	if config.Request == nil || config.Answer == nil {
		return nil, errors.New("config has no request or no answer")
	}
	var opened recording
	if opened.request, err = os.Open(*config.Request); err != nil {
		return nil, err
	}
	if opened.answer, err = os.OpenFile(*config.Answer, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	if config.Proof != nil {
		text, err := os.ReadFile(*config.Proof)
		if err != nil {
			return nil, err
		}
		proof := string(text)
		opened.proof = &proof
	}
	return &opened, nil
}

// dial lives among the tenants: what they can do to it, they do to the host's connection.
func dial(socket string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // the collector would need a thread
	if err := confine.Harden(); err != nil {
		return err
	}
	proc.Hold(dialThreads)
	return server.Dial(socket, os.Stdin, os.Stdout)
}

// become leaves root for good, with some folders. The kernel clears all capabilities of a process whose ids all leave 0.
func become(id int, folders []string) error {
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.Chown(folder, id, id); err != nil {
			return err
		}
	}
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

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/guest/internal/output"
	"holdfast/guest/internal/wire"
)

// A supervisor is this program again. There is one pool in all tests: it kills every child of the process that is not
// its own, and so would a second one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		Hold(2)
		if err := Supervise(func() error { return nil }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	shared().pool.KillAll()
	os.Exit(code)
}

var shared = sync.OnceValue(func() *Registry {
	workspace, err := os.MkdirTemp("", "proc-test")
	if err != nil {
		panic(err)
	}
	config := wire.GuestConfig{Workspace: workspace, Env: map[string]string{"PATH": defaultPath}}
	return NewRegistry(config, NewPool([]string{"supervise", "{}"}), func() {})
})

func shell(line string) wire.ExecRequest {
	return wire.ExecRequest{
		Shell: &line, Stdin: wire.StdinModeNone, StdoutCapBytes: 1 << 16, StderrCapBytes: 1 << 16,
		Background: wire.BackgroundKill, Delivery: wire.DeliveryResult,
	}
}

func within(request wire.ExecRequest, timeout time.Duration) wire.ExecRequest {
	milliseconds := timeout.Milliseconds()
	request.TimeoutMS = &milliseconds
	return request
}

func start(t *testing.T, request wire.ExecRequest) *Exec {
	t.Helper()
	exec, err := shared().Start(request)
	if err != nil {
		t.Fatal(err)
	}
	return exec
}

func ended(t *testing.T, exec *Exec) *wire.ExecEnded {
	t.Helper()
	select {
	case <-exec.Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", exec.Command)
	}
	return exec.Ended()
}

func said(exec *Exec) string {
	var out strings.Builder
	_ = exec.Log.Kept(output.Stdout, func(piece []byte) error { out.Write(piece); return nil })
	return out.String()
}

// programs are the living processes of all execs: what is beneath us, without supervisors.
func programs() []process {
	var found []process
	for _, p := range descendants(os.Getpid(), nil) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if !strings.HasPrefix(string(line), "guest\x00supervise") {
			found = append(found, p)
		}
	}
	return found
}

// running counts the processes with this in their command.
func running(marker string) int {
	count := 0
	for _, p := range programs() {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); strings.Contains(string(line), marker) {
			count++
		}
	}
	return count
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 15 s: %s; there are %v", what, programs())
		}
	}
}

func lines(t *testing.T, name string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(shared().config.Workspace, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "\n")
}

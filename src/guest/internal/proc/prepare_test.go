package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

func codeOf(err error) wire.ErrorCode {
	var failure *wire.Failure
	if errors.As(err, &failure) {
		return failure.Code
	}
	return ""
}

func TestEveryMistakeHasItsOwnAnswer(t *testing.T) {
	workspace := t.TempDir()
	for name, mode := range map[string]os.FileMode{"script": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(workspace, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	config := wire.GuestConfig{Workspace: workspace, Env: map[string]string{"PATH": "/usr/bin:/bin"}}
	text := func(value string) *string { return &value }
	base := wire.ExecRequest{Argv: []string{"true"}}
	for name, test := range map[string]struct {
		change func(*wire.ExecRequest)
		want   wire.ErrorCode
	}{
		"fine":             {func(*wire.ExecRequest) {}, ""},
		"a script":         {func(r *wire.ExecRequest) { r.Argv = []string{"./script"} }, ""},
		"a shell line":     {func(r *wire.ExecRequest) { r.Argv, r.Shell = nil, text("true") }, ""},
		"both":             {func(r *wire.ExecRequest) { r.Shell = text("true") }, wire.ErrorCodeInvalidRequest},
		"neither":          {func(r *wire.ExecRequest) { r.Argv = nil }, wire.ErrorCodeInvalidRequest},
		"empty name":       {func(r *wire.ExecRequest) { r.Argv = []string{""} }, wire.ErrorCodeInvalidRequest},
		"NUL":              {func(r *wire.ExecRequest) { r.Argv = []string{"true", "a\x00b"} }, wire.ErrorCodeInvalidRequest},
		"raw byte":         {func(r *wire.ExecRequest) { r.Argv = []string{"true", "a\x00ff"} }, ""},
		"long argument":    {func(r *wire.ExecRequest) { r.Argv = []string{"true", strings.Repeat("x", 1<<17)} }, wire.ErrorCodeArgumentTooLong},
		"not there":        {func(r *wire.ExecRequest) { r.Argv = []string{"no-such-thing"} }, wire.ErrorCodeCommandNotFound},
		"no such cwd":      {func(r *wire.ExecRequest) { r.Cwd = text("gone") }, wire.ErrorCodeCwdNotFound},
		"cwd is a file":    {func(r *wire.ExecRequest) { r.Cwd = text("plain") }, wire.ErrorCodeCwdNotADirectory},
		"cwd in /proc":     {func(r *wire.ExecRequest) { r.Cwd = text("/proc/self/fd/7") }, wire.ErrorCodePathNotAllowed},
		"cwd to /proc":     {func(r *wire.ExecRequest) { r.Cwd = text("/tmp/../proc") }, wire.ErrorCodePathNotAllowed},
		"empty cwd":        {func(r *wire.ExecRequest) { r.Cwd = text("") }, wire.ErrorCodeInvalidRequest},
		"variable":         {func(r *wire.ExecRequest) { r.Env = map[string]string{"A=B": ""} }, wire.ErrorCodeInvalidRequest},
		"variable's NUL":   {func(r *wire.ExecRequest) { r.Env = map[string]string{"A": "x\x00y"} }, wire.ErrorCodeInvalidRequest},
		"long variable":    {func(r *wire.ExecRequest) { r.Env = map[string]string{"A": strings.Repeat("x", 1<<17)} }, wire.ErrorCodeArgumentTooLong},
		"unknown user":     {func(r *wire.ExecRequest) { r.User = text("nobody-of-this-name") }, wire.ErrorCodeUserUnknown},
		"user's own group": {func(r *wire.ExecRequest) { r.User = text("0:wheel") }, wire.ErrorCodeUserUnknown},
		"negative cap":     {func(r *wire.ExecRequest) { r.StdoutCapBytes = -1 }, wire.ErrorCodeInvalidRequest},
		"huge cap":         {func(r *wire.ExecRequest) { r.StderrCapBytes = maxCapBytes + 1 }, wire.ErrorCodeInvalidRequest},
	} {
		request := base
		test.change(&request)
		work, err := prepare(request, config)
		if codeOf(err) != test.want || (test.want == "") != (err == nil) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err == nil && (work.Cwd == "" || !filepath.IsAbs(work.Path)) {
			t.Errorf("%s: %+v", name, work)
		}
	}
}

// What only the kernel finds out has its own answer too.
func TestProgramsThatCannotBeExecuted(t *testing.T) {
	workspace := shared().config.Workspace
	for name, content := range map[string]string{"plain": "#!/bin/sh\n", "orphan": "#!/no/such/shell\n", "garbage": "\x01\x02"} {
		mode := os.FileMode(0o755)
		if name == "plain" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(workspace, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for program, want := range map[string]wire.ErrorCode{
		"./plain": wire.ErrorCodeNotExecutable, "/usr": wire.ErrorCodeNotExecutable, "./garbage": wire.ErrorCodeNotExecutable,
		"/no/such/thing": wire.ErrorCodeCommandNotFound, "./orphan": wire.ErrorCodeCommandNotFound, "/bin/true": "",
	} {
		for _, delivery := range []wire.Delivery{wire.DeliveryResult, wire.DeliveryDetached} {
			request := shell("")
			request.Shell, request.Argv, request.Delivery = nil, []string{program}, delivery
			exec, err := shared().Start(request)
			if codeOf(err) != want {
				t.Errorf("%s: %v, want %q", program, err, want)
			}
			if err == nil {
				ended(t, exec)
			}
		}
	}
}

func TestTheReasonOfAnEnd(t *testing.T) {
	folder := t.TempDir()
	memory, pids := filepath.Join(folder, "memory.events"), filepath.Join(folder, "pids.events")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		ours         wire.EndCause
		failed, lost bool
		memory, pids string
		want         wire.EndCause
	}{
		"nothing happened":               {"", false, false, "oom_kill 1", "max 5", wire.EndCauseCompleted},
		"it failed by itself":            {"", true, false, "oom_kill 1", "max 5", wire.EndCauseCompleted},
		"killed at the memory limit":     {"", true, false, "low 0\noom_kill 2", "max 5", wire.EndCauseOom},
		"a child was, and it got over":   {"", false, false, "oom_kill 2", "max 5", wire.EndCauseCompleted},
		"lost":                           {"", true, true, "oom_kill 1", "max 5", wire.EndCauseLost},
		"the supervisor ran into memory": {"", true, true, "oom_kill 2", "max 5", wire.EndCauseOom},
		"no process left":                {"", true, false, "oom_kill 1", "max 6", wire.EndCausePidsLimit},
		"both, and memory first":         {"", true, false, "oom_kill 2", "max 6", wire.EndCauseOom},
		"what we did counts first":       {wire.EndCauseTimeout, true, true, "oom_kill 2", "max 6", wire.EndCauseTimeout},
		"the files are gone":             {"", true, false, "", "", wire.EndCauseCompleted},
	} {
		write(memory, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
		write(pids, "max 5\n")
		v := events{counters: openCounters(wire.GuestConfig{Workspace: folder, MemoryEvents: &memory, PidsEvents: &pids})}
		v.begin()
		write(memory, test.memory)
		write(pids, test.pids)
		if got := v.judge(test.ours, test.failed, test.lost); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	without := events{counters: openCounters(wire.GuestConfig{Workspace: folder})}
	without.begin()
	if got := without.judge("", true, false); got != wire.EndCauseCompleted {
		t.Errorf("without counters: %s", got)
	}
}

// A name may hold anything, also what looks like the rest of the line.
func TestProcessesWithOddNames(t *testing.T) {
	raw, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a b", ") Z 1 (", "((", "))", "\n"} {
		if err := os.WriteFile(filepath.Join(shared().config.Workspace, name), raw, 0o755); err != nil {
			t.Fatal(err)
		}
		request := shell("")
		request.Shell, request.Argv = nil, []string{"./" + name, "401"}
		exec := start(t, request)
		until(t, "it runs", func() bool { return running("401") == 1 })
		found := programs()
		if len(found) != 1 || found[0].name != name || found[0].dead() || found[0].parent == 1 {
			t.Errorf("%q: %+v", name, found)
		}
		send(process{pid: found[0].pid, start: found[0].start + 1}, unix.SIGKILL) // another process that had this pid
		time.Sleep(10 * time.Millisecond)
		if running("401") != 1 {
			t.Error("a stranger's signal reached it")
		}
		send(found[0], unix.SIGKILL)
		ended(t, exec)
	}
}

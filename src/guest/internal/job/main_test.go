package job

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/guest/internal/proc"
	"holdfast/guest/internal/server"
	"holdfast/guest/internal/wire"
)

// A supervisor is this program again, and so is a guest: its pool kills every child of its process, so that one process
// has one guest.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "supervise" || os.Args[1] == "job") {
		if err := again(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func again(command, argument string) error {
	proc.Hold(2)
	if command == "supervise" {
		return proc.Supervise(func() error { return nil })
	}
	task, err := Open(argument)
	if err != nil {
		return err
	}
	guest, err := server.New(task.Config, []string{"supervise", "{}"})
	if err != nil {
		return err
	}
	return task.Run(guest.RunOnce, os.Stdout)
}

// folder makes a job of shell code; change may alter its spec.
func folder(t *testing.T, code string, change func(map[string]any)) string {
	t.Helper()
	job, workspace := t.TempDir(), t.TempDir()
	spec := map[string]any{
		"engine": "dagger", "runtime": "bash", "workspace": workspace, "code": code, "script": "main.sh",
		"command": []string{"sh"}, "timeout_seconds": 20.0, "network": false, "max_stdout_bytes": 1000, "max_stderr_bytes": 1000,
		"max_artifact_bytes": 1000, "max_artifacts": 3, "limits": map[string]int{"open_files": 256, "memory_mb": 512},
	}
	if change != nil {
		change(spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	put(t, job, "spec.json", string(text))
	return job
}

func put(t *testing.T, folder, name, content string) {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func got(t *testing.T, folder, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// do runs the job of a folder in a process of its own.
func do(t *testing.T, folder string) (Result, error) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	self, err := os.StartProcess("/proc/self/exe", []string{"guest", "job", folder},
		&os.ProcAttr{Files: []*os.File{nil, nil, writer}, Env: os.Environ()})
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	buffer := make([]byte, 4096)
	for {
		count, err := reader.Read(buffer)
		words.Write(buffer[:count])
		if err != nil {
			break
		}
	}
	state, err := self.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !state.Success() {
		return Result{}, fmt.Errorf("%s", strings.TrimSpace(words.String()))
	}
	var result Result
	if err := json.Unmarshal([]byte(got(t, folder, "out/result.json")), &result); err != nil {
		t.Fatal(err)
	}
	return result, nil
}

func must(t *testing.T, folder string) Result {
	t.Helper()
	result, err := do(t, folder)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func exited(result Result, code int64) bool {
	return result.EndCause == wire.EndCauseCompleted && result.ExitCode != nil && *result.ExitCode == code
}

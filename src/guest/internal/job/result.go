package job

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path"

	"holdfast/guest/internal/wire"
)

// Result is what `RunResult.as_tool` in results.py has: the same names, and the same meaning.
type Result struct {
	OK bool `json:"ok"`
	Summary
	DurationMS       int64          `json:"duration_ms"`
	Stdout           string         `json:"stdout"`
	Stderr           string         `json:"stderr"`
	Encoding         string         `json:"encoding"`
	Truncated        bool           `json:"truncated"`
	StdoutTotalBytes int64          `json:"stdout_total_bytes"`
	StderrTotalBytes int64          `json:"stderr_total_bytes"`
	CPUMS            int64          `json:"cpu_ms"`
	PeakMemoryBytes  int64          `json:"peak_memory_bytes"`
	LeftProcesses    []string       `json:"left_processes"`
	Runtime          string         `json:"runtime"`
	Engine           string         `json:"engine"`
	Artifacts        []artifact     `json:"artifacts"`
	Skipped          []skipped      `json:"artifacts_skipped"`
	SkippedCount     int64          `json:"artifacts_skipped_count"`
	Published        []skipped      `json:"artifacts_published"` // none: a job has no object store
	Unlisted         bool           `json:"artifacts_unlisted"`
	Cached           bool           `json:"cached"`
	Limits           map[string]any `json:"limits"`
}

// Summary is what goes to stdout: enough for a caller that takes the rest from the files.
type Summary struct {
	ExitCode *int64        `json:"exit_code"`
	EndCause wire.EndCause `json:"end_cause"`
	Signal   *int64        `json:"signal"`
}

type skipped struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

func (j *Job) result(found *heard) Result {
	ended := found.ended.Ended
	result := Result{
		OK:      ended.EndCause == wire.EndCauseCompleted && ended.ExitCode != nil && *ended.ExitCode == 0,
		Summary: Summary{ended.ExitCode, ended.EndCause, ended.Signal},

		DurationMS: int64(math.Round(ended.DurationMS)), CPUMS: int64(math.Round(ended.CPUMS)),
		Encoding: "utf-8", Truncated: truncated(ended.Stdout) || truncated(ended.Stderr),
		StdoutTotalBytes: ended.Stdout.TotalBytes, StderrTotalBytes: ended.Stderr.TotalBytes,
		PeakMemoryBytes: ended.PeakMemoryBytes, LeftProcesses: []string{},
		Runtime: j.spec.Runtime, Engine: j.spec.Engine, Limits: j.limits(),
		Artifacts: found.artifacts, Skipped: []skipped{}, Published: []skipped{}, SkippedCount: found.ended.SkippedCount, Unlisted: found.ended.Unlisted,
	}
	var lossy [2]bool
	result.Stdout, lossy[0] = text(found.streams[0], ended.Stdout)
	result.Stderr, lossy[1] = text(found.streams[1], ended.Stderr)
	if lossy[0] || lossy[1] {
		result.Encoding = "utf-8-lossy"
	}
	if result.Artifacts == nil {
		result.Artifacts = []artifact{}
	}
	for _, left := range ended.Left {
		result.LeftProcesses = append(result.LeftProcesses, printable(left.Name))
	}
	for _, one := range found.ended.Skipped {
		name, _ := wire.FromWire(one.Path) // the server wrote it
		result.Skipped = append(result.Skipped, skipped{readable(name), one.SizeBytes})
	}
	return result
}

// limits says which held, and by what: the words are those of engines/dagger/engine.py.
func (j *Job) limits() map[string]any {
	spec := j.spec
	limits := map[string]any{
		"timeout_seconds": spec.seconds, "max_stdout_bytes": spec.MaxStdoutBytes,
		"max_stderr_bytes": spec.MaxStderrBytes, "max_artifact_bytes": spec.MaxArtifactBytes,
	}
	heldBy, notHeld := map[string]string{}, map[string]string{}
	for _, limit := range []struct {
		name  string
		value *int64
		where map[string]string
		why   string
	}{
		{"workspace_mb", spec.Limits.WorkspaceMB, heldBy, "a tmpfs of this size"},
		{"max_file_size_bytes", spec.Limits.MaxFileSizeBytes, heldBy, "RLIMIT_FSIZE"},
		{"open_files", spec.Limits.OpenFiles, heldBy, "RLIMIT_NOFILE"},
		{"processes", spec.Limits.Processes, heldBy, "RLIMIT_NPROC of a user of its own"},
		{"max_files", spec.Limits.MaxFiles, notHeld,
			"a tmpfs of Dagger has no such limit; files written through the API are counted"},
		{"memory_mb", spec.Limits.MemoryMB, notHeld,
			"holds for each process (RLIMIT_DATA), not for all together: Dagger has no such limit"},
		{"cpu_millicores", spec.Limits.CPUMillicores, notHeld, "Dagger has no such limit"},
	} {
		if limit.value != nil {
			limits[limit.name] = *limit.value
			limit.where[limit.name] = limit.why
		}
	}
	limits["held_by"], limits["not_held"] = heldBy, notHeld
	return limits
}

// record leaves the result in files.
func (j *Job) record(found *heard, stdout io.Writer) error {
	result := j.result(found)
	whole, err := encode(result)
	if err != nil {
		return err
	}
	contents := map[string][]byte{"result.json": whole, "stdout": found.streams[0], "stderr": found.streams[1]}
	for _, one := range found.artifacts {
		contents[path.Join("artifacts", one.name)] = one.Content
	}
	for name, content := range contents {
		if err := j.write(name, content); err != nil {
			return err
		}
	}
	summary, err := encode(result.Summary)
	if err != nil {
		return err
	}
	_, err = stdout.Write(summary)
	return err
}

func (j *Job) write(name string, content []byte) error {
	if err := j.out.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := j.out.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(content); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// encode leaves < and & as they are: people read it.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}

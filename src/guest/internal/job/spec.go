// Package job is a run whose host is a program that knows nothing but files and JSON, such as a Dagger module.
//
//	FOLDER/spec.json    what to run: Spec
//	FOLDER/code         the program's text, if it is not in the spec
//	FOLDER/files/       what the program finds in its workspace; may be missing
//	FOLDER/out/         made here: result.json, stdout and stderr as they were written, artifacts/
//
// It is a host inside the guest: it says to the server what any host says for a run, and writes down the answer.
package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/guest/internal/wire"
)

const (
	home = "/home/sandbox"
	// seconds after the program's time for all that is not the program
	spareSeconds = 60
	maxSeconds   = 86400
	// threads of the guest and its supervisors, which are the program's user too
	guestTasks = 96
)

var environment = map[string]string{
	"PATH":                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME":                    home,
	"LANG":                    "C.UTF-8",
	"PYTHONUNBUFFERED":        "1",
	"PYTHONDONTWRITEBYTECODE": "1",
}

// Spec is what to run. Only what is a pointer, a list or a map may be left out.
type Spec struct {
	// Engine and Runtime are repeated in the result.
	Engine  string `json:"engine"`
	Runtime string `json:"runtime"`
	// Workspace is the program's folder, an absolute path; whoever writes the spec has put a limit on it.
	Workspace string `json:"workspace"`
	// Code, or else the file `code`, becomes the file Script in the workspace, and the last argument of Command.
	Code    *string  `json:"code"`
	Script  string   `json:"script"`
	Command []string `json:"command"`
	// Args come after Script, and then those that ArgsJSON, the text of a JSON list, has.
	Args     []string `json:"args"`
	ArgsJSON *string  `json:"args_json"`
	// Env is NAME=VALUE; EnvJSON, the text of a JSON object, wins over it.
	Env       []string `json:"env"`
	EnvJSON   *string  `json:"env_json"`
	Artifacts []string `json:"artifacts"`
	// TimeoutSeconds may be the text of a number: not every host can write one with a fraction.
	TimeoutSeconds   json.Number `json:"timeout_seconds"`
	Network          bool        `json:"network"`
	MaxStdoutBytes   int64       `json:"max_stdout_bytes"`
	MaxStderrBytes   int64       `json:"max_stderr_bytes"`
	MaxArtifactBytes int64       `json:"max_artifact_bytes"`
	MaxArtifacts     int64       `json:"max_artifacts"`
	Limits           Limits      `json:"limits"`

	text        string
	seconds     float64
	argv        []string
	environment map[string]string
}

// Limits are those of config.py, by their names there.
type Limits struct {
	MemoryMB         *int64 `json:"memory_mb,omitempty"`
	Processes        *int64 `json:"processes,omitempty"`
	CPUMillicores    *int64 `json:"cpu_millicores,omitempty"`
	WorkspaceMB      *int64 `json:"workspace_mb,omitempty"`
	MaxFiles         *int64 `json:"max_files,omitempty"`
	MaxFileSizeBytes *int64 `json:"max_file_size_bytes,omitempty"`
	OpenFiles        *int64 `json:"open_files,omitempty"`
}

// read takes a spec from a folder; one that makes no sense is refused before anything is done for it.
func read(folder string) (*Spec, error) {
	text, err := os.ReadFile(filepath.Join(folder, "spec.json"))
	if err != nil {
		return nil, err
	}
	var spec Spec
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return nil, fmt.Errorf("spec.json: %w", err)
	}
	if spec.text, err = spec.program(folder); err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, err
	}
	if spec.argv, err = spec.arguments(); err != nil {
		return nil, err
	}
	spec.environment, err = spec.variables()
	return &spec, err
}

func (s *Spec) check() error {
	switch {
	case strings.TrimSpace(s.text) == "":
		return refuse("there is no code to run")
	case len(s.Command) == 0 || s.Script == "" || !filepath.IsAbs(s.Workspace):
		return refuse("spec.json has no command, no script, or a workspace that is not an absolute path")
	}
	seconds, err := s.TimeoutSeconds.Float64()
	if err != nil || !(seconds > 0 && seconds <= maxSeconds) {
		return refuse("a timeout of %s s is none; say more than 0 and at most %d", s.TimeoutSeconds, maxSeconds)
	}
	s.seconds = seconds
	for _, limit := range []*int64{
		s.Limits.MemoryMB, s.Limits.Processes, s.Limits.CPUMillicores, s.Limits.WorkspaceMB,
		s.Limits.MaxFiles, s.Limits.MaxFileSizeBytes, s.Limits.OpenFiles,
	} {
		if limit != nil && *limit <= 0 {
			return refuse("a limit is a positive number, and %d is none", *limit)
		}
	}
	return nil
}

func (s *Spec) program(folder string) (string, error) {
	if s.Code != nil {
		return *s.Code, nil
	}
	text, err := os.ReadFile(filepath.Join(folder, "code"))
	return string(text), err
}

// arguments are those of the whole program.
func (s *Spec) arguments() ([]string, error) {
	var more []string
	if s.ArgsJSON != nil {
		if err := json.Unmarshal([]byte(*s.ArgsJSON), &more); err != nil {
			return nil, refuse("the arguments are no JSON list of texts, such as [\"a,b\"]: %v", err)
		}
	}
	argv := slices.Concat(s.Command, []string{filepath.Join(s.Workspace, s.Script)}, s.Args, more)
	if strings.Contains(strings.Join(argv, ""), "\x00") {
		return nil, refuse("the arguments contain a NUL byte")
	}
	return argv, nil
}

func (s *Spec) variables() (map[string]string, error) {
	found := map[string]string{}
	for _, variable := range s.Env {
		name, value, complete := strings.Cut(variable, "=")
		if !complete || name == "" {
			return nil, refuse("%q is no variable; say NAME=VALUE", variable)
		}
		found[name] = value
	}
	if s.EnvJSON != nil {
		if err := json.Unmarshal([]byte(*s.EnvJSON), &found); err != nil {
			return nil, refuse("the environment is no JSON object of texts, such as {\"NAME\": \"a,b\"}: %v", err)
		}
	}
	for name, value := range found {
		if strings.Contains(name+value, "\x00") {
			return nil, refuse("the variable %q contains a NUL byte", name)
		}
	}
	return found, nil
}

func refuse(format string, arguments ...any) error {
	return wire.Fail(wire.ErrorCodeInvalidRequest, format, arguments...)
}

// config is what the engine `dagger` gives to a guest for the same run: see engines/dagger/execution.py.
func (s *Spec) config(user *int64) wire.GuestConfig {
	lifetime := int64((s.seconds + spareSeconds) * 1000)
	cores := 1.0
	if s.Limits.CPUMillicores != nil {
		cores = max(cores, float64(*s.Limits.CPUMillicores)/1000)
	}
	seconds := int64(math.Round(s.seconds*cores)) + 1
	limits := wire.GuestLimits{
		OpenFiles: s.Limits.OpenFiles, FileBytes: s.Limits.MaxFileSizeBytes, Files: s.Limits.MaxFiles, CPUSeconds: &seconds,
	}
	if s.Limits.Processes != nil {
		processes := *s.Limits.Processes + guestTasks
		limits.Processes = &processes
	}
	if s.Limits.MemoryMB != nil {
		data := *s.Limits.MemoryMB << 20
		limits.DataBytes = &data
	}
	return wire.GuestConfig{
		Workspace: s.Workspace, MaxLifetimeMS: &lifetime, User: user, Own: s.own(user), Env: environment, Limits: limits, Network: s.Network,
	}
}

func (s *Spec) own(user *int64) []string {
	if user == nil {
		return nil
	}
	return []string{s.Workspace, home}
}

// request is the run as any host asks for it; its files are in the workspace already.
func (s *Spec) request() wire.RunRequest {
	timeout := max(1, int64(math.Round(s.seconds*1000)))
	return wire.RunRequest{
		Op: wire.OpRunRequest, Files: []wire.RunFile{}, Artifacts: s.Artifacts,
		MaxArtifactBytes: s.MaxArtifactBytes, MaxArtifacts: s.MaxArtifacts,
		Program: wire.ExecRequest{
			Op: wire.OpExecRequest, Argv: s.argv, Env: s.environment, Stdin: wire.StdinModeNone, TimeoutMS: &timeout,
			StdoutCapBytes: s.MaxStdoutBytes, StderrCapBytes: s.MaxStderrBytes,
			Background: wire.BackgroundKill, Delivery: wire.DeliveryResult,
		},
	}
}

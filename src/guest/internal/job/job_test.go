package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/guest/internal/wire"
)

func TestAProgramGetsItsCodeArgumentsEnvironmentAndFiles(t *testing.T) {
	job := folder(t, `printf '%s|' "$@" "$A" "$B" "$C"; cat sub/in.txt link; ./tool`, func(spec map[string]any) {
		spec["args"], spec["args_json"] = []string{"one"}, `["two,three"]`
		spec["env"], spec["env_json"] = []string{"A=x=y", "B=old"}, `{"B": "b,b", "C": ""}`
	})
	put(t, job, "files/sub/in.txt", "in\n")
	put(t, job, "files/tool", "#!/bin/sh\necho ran\n")
	if err := os.Chmod(filepath.Join(job, "files/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/in.txt", filepath.Join(job, "files/link")); err != nil {
		t.Fatal(err)
	}
	result := must(t, job)
	if want := "one|two,three|x=y|b,b||in\nin\nran\n"; result.Stdout != want || !result.OK {
		t.Fatalf("%+v", result)
	}
}

func TestTheCodeMayBeAFile(t *testing.T) {
	job := folder(t, "", func(spec map[string]any) { delete(spec, "code") })
	put(t, job, "code", "printf '\\377'; echo from a file")
	must(t, job)
	if found := got(t, job, "out/stdout"); found != "\xfffrom a file\n" {
		t.Errorf("%q", found)
	}
	if _, err := do(t, folder(t, "", func(spec map[string]any) { delete(spec, "code") })); err == nil {
		t.Error("ran nothing")
	}
}

func TestAProgramsEndIsToldAsItWas(t *testing.T) {
	if result := must(t, folder(t, "exit 150", nil)); result.OK || !exited(result, 150) || result.Signal != nil {
		t.Errorf("exit: %+v", result)
	}
	if result := must(t, folder(t, "echo before; kill -SEGV $$", nil)); result.ExitCode != nil || *result.Signal != 11 || result.Stdout != "before\n" {
		t.Errorf("signal: %+v", result)
	}
	hurry := func(spec map[string]any) { spec["timeout_seconds"] = "0.3" }
	if result := must(t, folder(t, "sleep 60 & sleep 60", hurry)); result.EndCause != wire.EndCauseTimeout || result.OK {
		t.Errorf("timeout: %+v", result)
	}
	left := must(t, folder(t, "sleep 60 >/dev/null 2>&1 & echo done", nil))
	if !left.OK || len(left.LeftProcesses) != 1 || left.LeftProcesses[0] != "sleep" {
		t.Errorf("left: %+v", left)
	}
}

func TestOutputIsExactInFilesAndTextInJSON(t *testing.T) {
	job := folder(t, `printf '\377\342\202 <ok>'; printf err >&2`, nil)
	result := must(t, job)
	if got(t, job, "out/stdout") != "\xff\xe2\x82 <ok>" || got(t, job, "out/stderr") != "err" {
		t.Errorf("%q", got(t, job, "out/stdout"))
	}
	if result.Stdout != "\uFFFD\uFFFD <ok>" || result.Encoding != "utf-8-lossy" || !strings.Contains(got(t, job, "out/result.json"), "<ok>") {
		t.Errorf("%+v", result)
	}
	flood := must(t, folder(t, "head -c 100000 /dev/zero | tr '\\0' x", nil))
	if len(flood.Stdout) != 1000 || flood.StdoutTotalBytes != 100000 || !flood.Truncated || flood.Encoding != "utf-8" {
		t.Errorf("flood: %d of %d", len(flood.Stdout), flood.StdoutTotalBytes)
	}
}

func TestArtifactsAreFilesAndOverTheCapTheyAreNamed(t *testing.T) {
	job := folder(t, `mkdir -p out/d; printf '\0\377' > out/d/a; head -c 2000 /dev/zero > out/big; ln -s /etc/passwd out/link; echo no > other`,
		func(spec map[string]any) { spec["artifacts"] = []string{"out/**"} })
	result := must(t, job)
	if got(t, job, "out/artifacts/out/d/a") != "\x00\xff" {
		t.Error("not what was written")
	}
	if len(result.Artifacts) != 1 || result.Artifacts[0].Path != "out/d/a" || string(result.Artifacts[0].Content) != "\x00\xff" {
		t.Errorf("%+v", result.Artifacts)
	}
	if len(result.Skipped) != 1 || result.Skipped[0] != (skipped{"out/big", 2000}) || result.SkippedCount != 1 {
		t.Errorf("%+v", result.Skipped)
	}
	for _, name := range []string{"out/artifacts/other", "out/artifacts/out/big", "out/artifacts/out/link"} {
		if _, err := os.Lstat(filepath.Join(job, name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatMakesNoSenseIsRefusedBeforeItRuns(t *testing.T) {
	for words, change := range map[string]func(map[string]any){
		"no code":                func(spec map[string]any) { spec["code"] = " \n" },
		"a timeout of 0 s":       func(spec map[string]any) { spec["timeout_seconds"] = 0 },
		"a timeout of 90000 s":   func(spec map[string]any) { spec["timeout_seconds"] = 90000 },
		"invalid number":         func(spec map[string]any) { spec["timeout_seconds"] = "soon" },
		"a positive number":      func(spec map[string]any) { spec["limits"] = map[string]int{"processes": 0} },
		"no JSON list":           func(spec map[string]any) { spec["args_json"] = `"a"` },
		"no JSON object":         func(spec map[string]any) { spec["env_json"] = `[]` },
		"say NAME=VALUE":         func(spec map[string]any) { spec["env"] = []string{"NAME"} },
		"a NUL byte":             func(spec map[string]any) { spec["args_json"] = `["\u0000ff"]` },
		"unknown field":          func(spec map[string]any) { spec["timeout"] = 3 },
		"no command":             func(spec map[string]any) { spec["command"] = []string{} },
		"is not in this sandbox": func(spec map[string]any) { spec["command"] = []string{"no-such-program"} },
	} {
		job := folder(t, "echo ran", change)
		if result, err := do(t, job); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %+v", words, err, result)
		}
		if _, err := os.Stat(filepath.Join(job, "out/result.json")); err == nil {
			t.Errorf("%s: there is a result all the same", words)
		}
	}
}

func TestFilesMayNotTakeTheCodesPlaceNorBeTooLarge(t *testing.T) {
	job := folder(t, "echo ran", nil)
	put(t, job, "files/main.sh", "echo wrong")
	if _, err := do(t, job); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Error(err)
	}
	small := func(spec map[string]any) { spec["limits"] = map[string]int{"max_file_size_bytes": 100} }
	job = folder(t, "echo ran", small)
	put(t, job, "files/big", strings.Repeat("x", 101))
	if _, err := do(t, job); err == nil || !strings.Contains(err.Error(), "larger than a file may be") {
		t.Error(err)
	}
	job = folder(t, "wc -c < fits", small)
	put(t, job, "files/fits", strings.Repeat("x", 100))
	if result := must(t, job); strings.TrimSpace(result.Stdout) != "100" {
		t.Errorf("%+v", result)
	}
}

func TestAResultIsWrittenOnce(t *testing.T) {
	job := folder(t, "echo once", nil)
	must(t, job)
	if _, err := do(t, job); err == nil {
		t.Error("the second run took the first one's place")
	}
}

func TestTheLimitsThatHeldAreTold(t *testing.T) {
	result := must(t, folder(t, "true", nil))
	held, not := result.Limits["held_by"].(map[string]any), result.Limits["not_held"].(map[string]any)
	if result.Limits["open_files"] != 256.0 || held["open_files"] != "RLIMIT_NOFILE" || not["memory_mb"] == nil {
		t.Errorf("%+v", result.Limits)
	}
	if _, asked := result.Limits["processes"]; asked {
		t.Error("a limit that nobody asked for")
	}
}

package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// one of each message, by name; the test fails on a golden file that is not here
func messages() map[string]any {
	all := []any{
		new(GuestLimits), new(GuestConfig), new(HostHello), new(GuestHello), new(ExecRequest), new(ExecRead), new(ExecWait),
		new(ExecKill), new(ExecStdin), new(ExecList), new(ExecStarted), new(OutputExpired), new(StreamCount),
		new(LeftProcess), new(ExecEnded), new(Segment), new(ExecOutput), new(ExecWaited), new(ExecInfo), new(ExecListing),
		new(FileEntry), new(FileWrite), new(FileRead), new(FileList), new(FileStat), new(FileDelete), new(FileMkdir),
		new(FileMove), new(FileDone), new(FileSent), new(FilePage), new(FileListed), new(Status), new(Shutdown), new(Retire),
		new(StatusReport), new(Done), new(Failure), new(RunFile), new(RunRequest), new(ArtifactFound), new(ArtifactSkipped),
		new(RunEnded),
	}
	named := make(map[string]any, len(all))
	for _, message := range all {
		named[reflect.TypeOf(message).Elem().Name()] = message
	}
	return named
}

func decode(t *testing.T, raw []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would hide what is lost of a large number
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// Both ends read the same files: what Python writes, Go reads and writes without loss.
func TestGoldenFiles(t *testing.T) {
	paths, err := filepath.Glob("../../../../tests/golden/*.json")
	if err != nil || len(paths) == 0 {
		t.Skip("there are no golden files here; they are in the repository's tests/golden")
	}
	known := messages()
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		message := known[name]
		if message == nil {
			t.Errorf("%s: no message of this name", path)
			continue
		}
		delete(known, name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(message); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		if want, got := decode(t, raw), decode(t, again); !reflect.DeepEqual(want, got) {
			t.Errorf("%s: read %v\nwrote %v", name, want, got)
		}
	}
	for name := range known {
		t.Errorf("%s has no golden file", name)
	}
}

package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/guest/internal/wire"
)

func order(line string, artifacts []string, files ...wire.RunFile) wire.RunRequest {
	return wire.RunRequest{
		Op: wire.OpRunRequest, Files: files, Program: shell(line), Artifacts: artifacts,
		MaxArtifactBytes: 1 << 20, MaxArtifacts: 10,
	}
}

// told is an answer of a run: output, and artifacts by name.
type told struct {
	ended     wire.RunEnded
	failure   wire.Failure
	stdout    string
	artifacts map[string]string
}

// hear sorts the frames of stream 1.
func hear(t *testing.T, next func() (wire.Frame, error)) (got told) {
	t.Helper()
	got.artifacts = map[string]string{}
	name := ""
	for {
		frame, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if frame.Stream != 1 {
			continue
		}
		switch frame.Kind {
		case wire.KindData:
			if name == "" {
				got.stdout += string(frame.Payload)
			} else {
				got.artifacts[name] += string(frame.Payload)
			}
		case wire.KindEvent:
			var found wire.ArtifactFound
			if json.Unmarshal(frame.Payload, &found) == nil && found.Type == wire.TypeArtifactFound {
				name = found.Path
				got.artifacts[name] = ""
			}
		case wire.KindMessage:
			_ = json.Unmarshal(frame.Payload, &got.ended)
			_ = json.Unmarshal(frame.Payload, &got.failure)
			return got
		}
	}
}

func TestARunIsFilesAProgramAndArtifacts(t *testing.T) {
	folder := fmt.Sprintf("run-%d", os.Getpid())
	t.Cleanup(func() { os.RemoveAll(filepath.Join(shared().config.Workspace, folder)) })
	h := greeted(t, wire.OnEofCancel, wire.WindowBytes)
	line := fmt.Sprintf("cd %s && cat in.txt - && mkdir out && printf x >out/a.txt && : >out/empty && head -c 2000000 /dev/zero >out/big; exit 3", folder)
	request := order(line, []string{folder + "/out/*"}, wire.RunFile{Path: folder + "/in.txt", SizeBytes: 5}, wire.RunFile{Path: folder + "/none", SizeBytes: 0})
	request.Program.Stdin = wire.StdinModePipe
	h.say(1, request)
	h.send(1, wire.KindData, []byte("filestdin")) // the file ends within a frame
	h.send(1, wire.KindEnd, nil)
	got := hear(t, h.next)
	if got.stdout != "filestdin" || *got.ended.Ended.ExitCode != 3 {
		t.Fatalf("%+v", got)
	}
	if len(got.artifacts) != 2 || got.artifacts[folder+"/out/a.txt"] != "x" {
		t.Fatalf("%v", got.artifacts)
	}
	if got.ended.SkippedCount != 1 || got.ended.Skipped[0].SizeBytes != 2000000 {
		t.Fatalf("%+v", got.ended)
	}
	quiet(t)
}

func TestARunThatCannotBeginStartsNothing(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for name, request := range map[string]wire.RunRequest{
		"path_not_allowed": order("touch "+marker, nil, wire.RunFile{Path: "../x", SizeBytes: 1}),
		"invalid_request":  order("touch "+marker, nil, wire.RunFile{Path: "short", SizeBytes: 100}),
	} {
		h := greeted(t, wire.OnEofCancel, wire.WindowBytes)
		h.say(1, request)
		h.send(1, wire.KindData, []byte("x"))
		h.send(1, wire.KindEnd, nil)
		if got := hear(t, h.next); string(got.failure.Code) != name {
			t.Errorf("%s: %+v", name, got)
		}
	}
	detached := order("touch "+marker, nil)
	detached.Program.Delivery = wire.DeliveryDetached
	h := greeted(t, wire.OnEofCancel, wire.WindowBytes)
	h.say(1, detached)
	if got := hear(t, h.next); got.failure.Code != wire.ErrorCodeInvalidRequest {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program ran")
	}
}

// replayed lets the shared server answer a conversation that lies in a buffer.
func replayed(t *testing.T, request wire.RunRequest, data []byte) (text string, answer []byte) {
	t.Helper()
	said, err := wire.Message(0, wire.KindMessage, wire.HostHello{Protocol: wire.Protocol, Window: 1 << 40, OnEof: wire.OnEofFinish})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := wire.Message(1, wire.KindMessage, request)
	if err != nil {
		t.Fatal(err)
	}
	conversation := wire.AppendFrame(wire.AppendFrame(nil, said), asked)
	for len(data) > 0 {
		size := min(len(data), wire.MaxDataBytes)
		conversation = wire.AppendFrame(conversation, wire.Frame{Stream: 1, Kind: wire.KindData, Payload: data[:size]})
		data = data[size:]
	}
	conversation = wire.AppendFrame(conversation, wire.Frame{Stream: 1, Kind: wire.KindEnd})
	path := filepath.Join(t.TempDir(), "answer")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	spilled := &spill{file: file}
	host := newConn(shared(), io.NopCloser(bytes.NewReader(conversation)), spilled, nil)
	host.replay = true
	if err := host.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := spilled.tell(&out); err != nil {
		t.Fatal(err)
	}
	answer, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), answer
}

func TestAReplayAnswersOnStdoutOrInAFile(t *testing.T) {
	text, _ := replayed(t, order("echo hello", nil), nil)
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	raw, err := base64.StdEncoding.DecodeString(rest)
	if word != "inline" || err != nil {
		t.Fatal(text, err)
	}
	reader := bytes.NewReader(raw)
	if got := hear(t, func() (wire.Frame, error) { return wire.ReadFrame(reader) }); got.stdout != "hello\n" {
		t.Fatalf("%+v", got)
	}
	text, answer := replayed(t, order("head -c 3000000 /dev/zero", nil), nil)
	if text != fmt.Sprintf("file %d\n", len(answer)) {
		t.Fatal(text, len(answer))
	}
	reader = bytes.NewReader(answer)
	if got := hear(t, func() (wire.Frame, error) { return wire.ReadFrame(reader) }); len(got.stdout) != 3000000 {
		t.Fatal(len(got.stdout))
	}
}

func TestAReplayNeedsNoCredit(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // four times the window
	request := order("cat", nil)
	request.Program.Stdin = wire.StdinModePipe
	_, answer := replayed(t, request, data)
	reader := bytes.NewReader(answer)
	if got := hear(t, func() (wire.Frame, error) { return wire.ReadFrame(reader) }); got.stdout != string(data) {
		t.Fatal(len(got.stdout))
	}
	// nor does a program that reads nothing hold it up
	request = order("exit 7", nil)
	request.Program.Stdin = wire.StdinModePipe
	text, _ := replayed(t, request, data)
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(text, "inline ")))
	reader = bytes.NewReader(raw)
	if got := hear(t, func() (wire.Frame, error) { return wire.ReadFrame(reader) }); *got.ended.Ended.ExitCode != 7 {
		t.Fatalf("%+v", got)
	}
}

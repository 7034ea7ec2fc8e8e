package server

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/guest/internal/wire"
)

func large(t *testing.T, name string, size int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(shared().config.Workspace, name), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// quiet: no exec is running, or counted as such for more than a moment.
func quiet(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Second); shared().execs.Running() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d execs go on", shared().execs.Running())
		}
	}
}

func TestAHostOfAnotherProtocolHearsOursAndIsLeft(t *testing.T) {
	h := connectRaw(t)
	h.say(0, wire.HostHello{Protocol: wire.Protocol + 1, Window: 1, OnEof: wire.OnEofCancel})
	var hello wire.GuestHello
	h.answer(0, &hello)
	if hello.Protocol != wire.Protocol || h.ends() == nil {
		t.Fatalf("%+v", hello)
	}
}

func TestWhatIsNoHello(t *testing.T) {
	for name, frame := range map[string]wire.Frame{
		"another stream": {Stream: 1, Kind: wire.KindMessage, Payload: []byte(`{"protocol":1}`)},
		"another kind":   {Stream: 0, Kind: wire.KindData, Payload: []byte(`{"protocol":1}`)},
		"no JSON":        {Stream: 0, Kind: wire.KindMessage, Payload: []byte("GET / HTTP/1.1")},
		"wrong types":    {Stream: 0, Kind: wire.KindMessage, Payload: []byte(`{"protocol":"1"}`)},
	} {
		h := connectRaw(t)
		h.raw(wire.AppendFrame(nil, frame))
		if h.ends() == nil {
			t.Errorf("%s was taken for a hello", name)
		}
	}
}

func TestBrokenHostsAreLeft(t *testing.T) {
	status := []byte(`{"op":"status"}`)
	for name, break_ := range map[string]func(*host){
		"a stream twice":       func(h *host) { h.send(5, wire.KindMessage, status); h.send(5, wire.KindMessage, status) },
		"a stream of the past": func(h *host) { h.send(5, wire.KindMessage, status); h.send(4, wire.KindMessage, status) },
		"data for the future":  func(h *host) { h.send(9, wire.KindData, []byte("x")) },
		"reset for the future": func(h *host) { h.send(9, wire.KindReset, nil) },
		"an event": func(h *host) {
			h.say(1, wire.FileWrite{Op: wire.OpFileWrite, Path: "x"})
			h.send(1, wire.KindEvent, nil)
		},
		"stderr": func(h *host) {
			h.say(1, wire.FileWrite{Op: wire.OpFileWrite, Path: "x"})
			h.send(1, wire.KindDataErr, nil)
		},
		"an unknown kind":       func(h *host) { h.raw([]byte{0, 0, 0, 0, 0, 0, 0, 1, 77}) },
		"more than may be held": func(h *host) { h.raw([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1}) },
		"data beyond the credit": func(h *host) {
			request := shell("sleep 60") // reads nothing
			request.Stdin = wire.StdinModePipe
			h.say(1, request)
			for range wire.WindowBytes/wire.MaxDataBytes + 2 {
				frame := wire.Frame{Stream: 1, Kind: wire.KindData, Payload: make([]byte, wire.MaxDataBytes)}
				_, _ = h.conn.Write(wire.AppendFrame(nil, frame)) // it may be over before the last
			}
		},
	} {
		h := greeted(t, wire.OnEofCancel, 1<<20)
		break_(h)
		if h.ends() == nil {
			t.Errorf("%s: the connection ended in peace", name)
		}
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	h := greeted(t, wire.OnEofCancel, 1<<20)
	for index, payload := range []string{"", "{}", "[]", `{"op":"nothing"}`, `{"op":1}`, `{"op":"exec","argv":{}}`, `{"op":"file_read","path":5}`} {
		h.send(uint32(index+1), wire.KindMessage, []byte(payload))
		var failure wire.Failure
		h.answer(uint32(index+1), &failure)
		if failure.Code != wire.ErrorCodeInvalidRequest {
			t.Errorf("%q: %+v", payload, failure)
		}
	}
}

// A host that does not read one stream still gets the others.
func TestAStalledStreamStallsNoOther(t *testing.T) {
	large(t, "large", 5<<20)
	h := greeted(t, wire.OnEofCancel, 1<<20)
	h.say(1, wire.FileRead{Op: wire.OpFileRead, Path: "large"})
	got := 0
	for got < 1<<20 {
		if frame := h.frame(); frame.Stream == 1 && frame.Kind == wire.KindData {
			got += len(frame.Payload)
		}
	}
	h.silent(1, "beyond the credit")
	if got != 1<<20 {
		t.Fatalf("%d bytes for a credit of %d", got, 1<<20)
	}
	for stream := uint32(2); stream < 50; stream++ {
		h.say(stream, wire.Status{Op: wire.OpStatus})
		var report wire.StatusReport
		h.answer(stream, &report)
		if report.Type != wire.TypeStatusReport {
			t.Fatalf("%+v", report)
		}
	}
	h.grant(1, 4<<20)
	var sent wire.FileSent
	if rest := h.answer(1, &sent); rest != 4<<20 || sent.SentBytes != 5<<20 {
		t.Fatalf("%d bytes more, %+v", rest, sent)
	}
}

// The host holds no more frames than credit allows, however small they are; events count too.
func TestSmallFramesAndEventsTakeCredit(t *testing.T) {
	const window = 20 * wire.FrameCost
	h := greeted(t, wire.OnEofCancel, window)
	folder := filepath.Join(shared().config.Workspace, "many")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for index := range 3 * wire.PageEntries {
		name := filepath.Join(folder, string(rune('a'+index%26))+time.Duration(index).String())
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.say(1, wire.FileList{Op: wire.OpFileList, Path: "many", MaxEntries: 10_000})
	if frame := h.frame(); frame.Kind != wire.KindEvent || len(frame.Payload) < window {
		t.Fatalf("%v", frame.Kind)
	}
	h.silent(1, "a second page, with no credit left")
	h.grant(1, 1<<20)
	var listed wire.FileListed
	if h.answer(1, &listed); listed.Count != 3*wire.PageEntries {
		t.Fatalf("%+v", listed)
	}
	request := shell("i=0; while [ $i -lt 100 ]; do echo o; echo e >&2; i=$((i+1)); done; sleep 60")
	request.Delivery = wire.DeliveryLive
	h.say(2, request)
	spent := 0
	for {
		_ = h.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		frame, err := wire.ReadFrame(h.conn)
		if err != nil {
			break
		}
		if spent >= window {
			t.Fatalf("a frame after %d of %d bytes of credit", spent, window)
		}
		spent += max(len(frame.Payload), wire.FrameCost)
	}
	h.send(2, wire.KindReset, nil)
	h.grant(2, 1<<20)
	var reply wire.Done
	h.answer(2, &reply)
}

func TestResetEndsTheWorkAndIsAnswered(t *testing.T) {
	h := greeted(t, wire.OnEofCancel, 1<<20)
	for stream := uint32(1); stream < 30; stream++ {
		mark := filepath.Join(shared().config.Workspace, "alive")
		_ = os.Remove(mark)
		h.say(stream, shell("touch alive; sleep 30; touch survived"))
		for end := time.Now().Add(20 * time.Second); stream%2 == 0; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(mark); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it did not start")
			}
		}
		h.send(stream, wire.KindReset, nil)
		var reply struct{ Type string }
		h.answer(stream, &reply)
		quiet(t)
	}
}

func TestTheEndOfTheHost(t *testing.T) {
	for _, test := range []struct {
		onEOF wire.OnEof
		want  bool
	}{{wire.OnEofFinish, true}, {wire.OnEofCancel, false}} {
		h := greeted(t, test.onEOF, 1<<20)
		mark := filepath.Join(shared().config.Workspace, "finished-"+string(test.onEOF))
		request := shell("cat > got; sleep 0.3; touch " + mark)
		request.Stdin = wire.StdinModePipe
		h.say(1, request)
		h.send(1, wire.KindData, []byte("all there is")) // and no END: the end of the host is one
		if err := h.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := h.ends(); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(mark)
		if finished := err == nil; finished != test.want {
			t.Errorf("%s: finished is %v", test.onEOF, finished)
		}
		if test.want {
			var ended wire.ExecEnded
			h.answer(1, &ended)
			if ended.ExitCode == nil || *ended.ExitCode != 0 {
				t.Errorf("%+v", ended)
			}
			if got, _ := os.ReadFile(filepath.Join(shared().config.Workspace, "got")); !bytes.Equal(got, []byte("all there is")) {
				t.Errorf("%q", got)
			}
		}
		quiet(t)
	}
}

func TestADetachedExecOutlivesItsHost(t *testing.T) {
	h := greeted(t, wire.OnEofCancel, 1<<20)
	request := shell("echo before; sleep 0.3; echo after")
	request.Delivery = wire.DeliveryDetached
	h.say(1, request)
	var started wire.ExecStarted
	h.answer(1, &started)
	h.conn.Close()
	h.ends()
	other := greeted(t, wire.OnEofCancel, 1<<20)
	other.say(1, wire.ExecWait{Op: wire.OpExecWait, ExecID: started.ExecID})
	var waited wire.ExecWaited
	other.answer(1, &waited)
	if waited.Ended == nil || waited.Ended.Stdout.TotalBytes != int64(len("before\nafter\n")) {
		t.Fatalf("%+v", waited)
	}
}

func TestWhatCannotBeSaidIsAnswered(t *testing.T) {
	ours, theirs := pair(t)
	h := &host{t: t, conn: ours}
	c := newConn(shared(), theirs, theirs, theirs)
	if err := c.message(1, wire.Failure{Message: string(make([]byte, wire.MaxMessageBytes))}); err != nil {
		t.Fatal(err)
	}
	var failure wire.Failure
	if h.answer(1, &failure); failure.Code != wire.ErrorCodeInternal {
		t.Fatalf("%+v", failure)
	}
}

func TestClocks(t *testing.T) {
	milliseconds := func(value int64) *int64 { return &value }
	idle := func() int { return 0 }
	for name, test := range map[string]struct {
		config  wire.GuestConfig
		running func() int
	}{
		"idle":     {wire.GuestConfig{IdleTimeoutMS: milliseconds(50)}, idle},
		"lifetime": {wire.GuestConfig{MaxLifetimeMS: milliseconds(50)}, func() int { return 1 }},
		"both":     {wire.GuestConfig{IdleTimeoutMS: milliseconds(50), MaxLifetimeMS: milliseconds(3_600_000)}, idle},
	} {
		done := make(chan bool)
		go func() { newClock(test.config).wait(test.running); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it does not end", name)
		}
	}
	// Busy is not idle, and use counts.
	busy := newClock(wire.GuestConfig{IdleTimeoutMS: milliseconds(30)})
	done := make(chan bool)
	go func() { busy.wait(func() int { return 1 }); close(done) }()
	select {
	case <-done:
		t.Fatal("it ended while something ran")
	case <-time.After(200 * time.Millisecond):
	}
	busy.stop()
	busy.stop()
	<-done
	// A retired session ends though it is used, and nothing gives it more time.
	for _, config := range []wire.GuestConfig{{}, {MaxLifetimeMS: milliseconds(3_600_000), IdleTimeoutMS: milliseconds(1)}} {
		kept := newClock(config)
		kept.retire(300 * time.Millisecond)
		kept.retire(time.Hour)
		var report wire.StatusReport
		if kept.report(&report); report.LifetimeLeftMS == nil || *report.LifetimeLeftMS > 300 {
			t.Error("a retired session has more time than it was left")
		}
		before := time.Now()
		kept.wait(func() int { return 0 })
		if time.Since(before) < 100*time.Millisecond {
			t.Error("idle time ends a session that is kept")
		}
	}
	waiting := newClock(wire.GuestConfig{})
	ended := make(chan bool)
	go func() { waiting.wait(func() int { return 1 }); close(ended) }()
	waiting.retire(0)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("a clock that waits does not hear that its time is over")
	}
	// The start of a clock carries the monotonic reading: setting the machine's time changes nothing.
	if busy.start == busy.start.Round(0) {
		t.Error("the clock's start has no monotonic part")
	}
}

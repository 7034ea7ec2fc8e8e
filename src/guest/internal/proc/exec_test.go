package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

func TestAProgramAndItsEnd(t *testing.T) {
	exec := start(t, shell("echo out; echo err >&2; exit 3"))
	end := ended(t, exec)
	if said(exec) != "out\n" || end.ExitCode == nil || *end.ExitCode != 3 || end.EndCause != wire.EndCauseCompleted {
		t.Fatalf("%q %+v", said(exec), end)
	}
	if end.Stdout.TotalBytes != 4 || end.Stderr.TotalBytes != 4 || end.PeakMemoryBytes == 0 || end.Left == nil {
		t.Fatalf("%+v", end)
	}
	end = ended(t, start(t, shell("kill -TERM $$")))
	if end.ExitCode != nil || end.Signal == nil || *end.Signal != int64(unix.SIGTERM) || end.EndCause != wire.EndCauseCompleted {
		t.Fatalf("%+v", end)
	}
}

func TestNothingSurvivesATimeout(t *testing.T) {
	daemons := "setsid sleep 321 & nohup sleep 322 >/dev/null 2>&1 & (setsid sh -c 'trap \"\" TERM HUP; sleep 323; sleep 324' &) ; sleep 325"
	exec := start(t, within(shell(daemons), time.Second))
	until(t, "all run", func() bool { return running("321") > 0 && running("322") > 0 && running("323") > 0 })
	end := ended(t, exec)
	if end.EndCause != wire.EndCauseTimeout || end.LeftCount < 3 {
		t.Fatalf("%+v", end)
	}
	if left := programs(); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

func TestWhatIsLeftIsKilledOrKept(t *testing.T) {
	exec := start(t, shell("setsid sleep 331 & exit 0"))
	if end := ended(t, exec); end.LeftCount != 1 || *end.ExitCode != 0 || running("331") != 0 {
		t.Fatalf("%+v", end)
	}
	request := shell("setsid sleep 332 & exit 0")
	request.Background = wire.BackgroundKeep
	exec = start(t, request)
	until(t, "it goes on", func() bool { return running("332") == 1 })
	if exec.Ended() != nil {
		t.Fatal("it has ended, and its process has not")
	}
	exec.Stop(wire.EndCauseKilled)
	if end := ended(t, exec); end.EndCause != wire.EndCauseKilled || running("332") != 0 {
		t.Fatalf("%+v", end)
	}
}

func TestChainsThatForkForEver(t *testing.T) {
	chain := "f() { sh -c '. ./chain.sh' & exit; }\nf\n"
	if err := os.WriteFile(filepath.Join(shared().config.Workspace, "chain.sh"), []byte(chain), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		exec := start(t, within(shell("for i in 1 2 3 4; do setsid sh ./chain.sh & done; sleep 60"), 500*time.Millisecond))
		if end := ended(t, exec); end.EndCause != wire.EndCauseTimeout {
			t.Fatalf("%+v", end)
		}
		if left := programs(); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

// An order that was meant for one job must not reach the next one of the same supervisor.
func TestALateOrderIsNotForTheNextJob(t *testing.T) {
	for range 20 {
		first := start(t, shell("true"))
		ended(t, first)
		second := start(t, shell("exec sleep 341"))
		until(t, "it runs", func() bool { return running("341") == 1 })
		second.mu.Lock()
		supervisor := second.worker
		second.mu.Unlock()
		for number := range second.number { // whoever had this supervisor before
			_ = supervisor.order(order{Signal: int(unix.SIGKILL), Number: number})
			_ = supervisor.order(order{Signal: int(unix.SIGTERM), Number: number})
		}
		first.Stop(wire.EndCauseKilled)
		first.Signal(unix.SIGTERM)
		time.Sleep(20 * time.Millisecond)
		if running("341") != 1 {
			t.Fatal("an order for another job killed it")
		}
		_ = supervisor.order(order{Signal: int(unix.SIGTERM), Number: second.number})
		if end := ended(t, second); end.Signal == nil || *end.Signal != int64(unix.SIGTERM) {
			t.Fatalf("its own order did not: %+v", end)
		}
	}
}

func TestStopAndEndAtOnce(t *testing.T) {
	bystander := start(t, shell("exec sleep 351"))
	until(t, "it runs", func() bool { return running("351") == 1 })
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 25 {
				exec, err := shared().Start(shell("exit 0"))
				if err != nil {
					t.Error(err)
					return
				}
				go exec.Stop(wire.EndCauseCancelled)
				<-exec.Done()
				end := exec.Ended()
				// Either it was first, and is a success; or we were, and it is not called one.
				if success := end.ExitCode != nil && *end.ExitCode == 0; end.EndCause == wire.EndCauseCompleted && !success {
					t.Errorf("%+v", end)
				}
			}
		}()
	}
	all.Wait()
	if running("351") != 1 {
		t.Fatal("the bystander died")
	}
	bystander.Stop(wire.EndCauseKilled)
	ended(t, bystander)
}

func TestTheShortestTimeouts(t *testing.T) {
	for range 50 {
		exec := start(t, within(shell("exec sleep 361"), time.Millisecond))
		if end := ended(t, exec); end.EndCause != wire.EndCauseTimeout {
			t.Fatalf("%+v", end)
		}
	}
	until(t, "all are gone", func() bool { return running("361") == 0 })
}

func TestAProgramThatKillsItsSupervisorIsLostAndRunsOnce(t *testing.T) {
	for round := range 25 {
		delay := ""
		if round%2 == 0 {
			delay = "sleep 0.05; "
		}
		name := fmt.Sprintf("once-%d", round)
		exec := start(t, shell(fmt.Sprintf("echo x >> %s; %skill -9 $PPID; setsid sleep 371 & exit 0", name, delay)))
		end := ended(t, exec)
		if end.EndCause != wire.EndCauseLost || end.ExitCode != nil {
			t.Fatalf("%+v", end)
		}
		if got := lines(t, name); got != 1 {
			t.Fatalf("it ran %d times", got)
		}
		until(t, "nothing is left", func() bool { return len(programs()) == 0 })
	}
}

func TestAProgramThatStopsItsSupervisorStillEnds(t *testing.T) {
	for _, delay := range []string{"", "sleep 0.1; "} {
		exec := start(t, within(shell(delay+"kill -STOP $PPID; sleep 381"), 300*time.Millisecond))
		if end := ended(t, exec); end.EndCause != wire.EndCauseTimeout {
			t.Fatalf("%+v", end)
		}
		until(t, "nothing is left", func() bool { return len(programs()) == 0 })
	}
}

func TestIdleSupervisorsThatWereStoppedOrKilled(t *testing.T) {
	signalIdle := func(number unix.Signal, supervisors, children bool) {
		pool := shared().pool
		pool.mu.Lock()
		defer pool.mu.Unlock()
		for _, idle := range pool.idle {
			parked := descendants(idle.pid, nil)
			if supervisors {
				_ = unix.Kill(idle.pid, number)
			}
			for _, child := range parked {
				if children {
					_ = unix.Kill(child.pid, number)
				}
			}
		}
	}
	allDead := func() bool {
		pool := shared().pool
		pool.mu.Lock()
		defer pool.mu.Unlock()
		for _, idle := range pool.idle {
			if !idle.dead() {
				return false
			}
		}
		return true
	}
	works := func(after string) {
		t.Helper()
		exec := start(t, within(shell("echo works"), 20*time.Second))
		if end := ended(t, exec); said(exec) != "works\n" || end.EndCause != wire.EndCauseCompleted {
			t.Fatalf("after %s: %q %+v", after, said(exec), end)
		}
	}
	for range 10 {
		works("nothing")
		signalIdle(unix.SIGSTOP, true, false)
		works("stopped supervisors")
		signalIdle(unix.SIGSTOP, false, true)
		works("stopped children")
		signalIdle(unix.SIGSTOP, true, true)
		works("both stopped")
		signalIdle(unix.SIGTERM, false, true)
		works("ended children")
		signalIdle(unix.SIGKILL, false, true)
		works("killed children")
		signalIdle(unix.SIGKILL, true, true)
		// Until then, a child may take a job and tell nobody of it: as lost as by a kill that comes a moment later.
		until(t, "the killed ones are dead", allDead)
		works("both killed")
		signalIdle(unix.SIGKILL, true, false)
		until(t, "the killed ones are dead", allDead)
		works("killed supervisors")
	}
}

// More arguments than fit into a packet, and more than the kernel takes.
func TestLongCommands(t *testing.T) {
	for _, test := range []struct {
		count, size int
		want        wire.ErrorCode
	}{{1, 10, ""}, {100, 1000, ""}, {1000, 1000, ""}, {400_000, 1, wire.ErrorCodeArgumentTooLong}, {1, 1, ""}} {
		request := shell("")
		request.Shell, request.Argv = nil, []string{"sh", "-c", `echo $#; for last; do :; done; echo $last; pwd`, "sh"}
		for range test.count {
			request.Argv = append(request.Argv, strings.Repeat("x", test.size))
		}
		request.Argv = append(request.Argv, "last")
		for range 3 {
			exec, err := shared().Start(request)
			if codeOf(err) != test.want {
				t.Fatalf("%+v: %v", test, err)
			}
			if err != nil {
				continue
			}
			ended(t, exec)
			if got := said(exec); got != fmt.Sprintf("%d\nlast\n%s\n", test.count+1, shared().config.Workspace) {
				t.Fatalf("%+v: %q", test, got)
			}
		}
	}
}

func TestTooMuchOutput(t *testing.T) {
	limit := int64(100_000)
	request := shell("cat /dev/zero")
	request.OutputLimitBytes = &limit
	if end := ended(t, start(t, request)); end.EndCause != wire.EndCauseOutputLimit || end.Stdout.TotalBytes < limit {
		t.Fatalf("%+v", end)
	}
	request = shell("head -c 50000 /dev/zero")
	request.OutputLimitBytes = &limit
	if end := ended(t, start(t, request)); end.EndCause != wire.EndCauseCompleted {
		t.Fatalf("%+v", end)
	}
}

func TestStdin(t *testing.T) {
	request := shell("cat")
	request.Stdin = wire.StdinModePipe
	exec := start(t, request)
	if err := exec.CopyStdin(context.Background(), strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	exec.CloseStdin()
	ended(t, exec)
	if said(exec) != "hello" {
		t.Fatalf("%q", said(exec))
	}
	if err := exec.CopyStdin(context.Background(), strings.NewReader("late")); err == nil {
		t.Fatal("the stdin of an ended program took something")
	}
	// A program that does not read: the caller gives up, and the program lives.
	request = shell("exec sleep 391")
	request.Stdin = wire.StdinModePipe
	exec = start(t, request)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := exec.CopyStdin(ctx, strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Fatal("a full pipe took all")
	}
	if exec.Ended() != nil {
		t.Fatal("it ended")
	}
	exec.Stop(wire.EndCauseKilled)
	ended(t, exec)
}

func TestTheRegistryForgetsTheOldest(t *testing.T) {
	var first *Exec
	for range maxEnded + 10 {
		exec := start(t, shell("true"))
		if first == nil {
			first = exec
		}
		ended(t, exec)
	}
	until(t, "all are counted out", func() bool { return shared().Running() == 0 })
	if list := shared().List(); len(list) > maxEnded {
		t.Fatalf("%d are kept", len(list))
	}
	if _, err := shared().Find(first.ID); err == nil {
		t.Fatal("the oldest is still there")
	}
}

func TestABurstKeepsItsSupervisorsAndThenLetsThemGo(t *testing.T) {
	idle := func() (pids map[int]bool) {
		pool := shared().pool
		pool.mu.Lock()
		defer pool.mu.Unlock()
		pids = make(map[int]bool)
		for _, one := range pool.idle {
			pids[one.pid] = true
		}
		return pids
	}
	together := func() {
		var execs []*Exec
		for range 2 * maxIdle {
			execs = append(execs, start(t, within(shell("until [ -e go ]; do sleep 0.02; done"), 20*time.Second)))
		}
		gone := filepath.Join(shared().config.Workspace, "go")
		if err := os.WriteFile(gone, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(gone)
		for _, exec := range execs {
			ended(t, exec)
		}
	}
	together()
	until(t, "all are back", func() bool { return len(idle()) >= 2*maxIdle })
	first := idle()
	together()
	until(t, "all are back", func() bool { return len(idle()) >= 2*maxIdle })
	for pid := range first {
		if !idle()[pid] {
			t.Errorf("supervisor %d was let go in the burst", pid)
		}
	}
	until(t, "the surplus is gone", func() bool { return len(idle()) == maxIdle })
}

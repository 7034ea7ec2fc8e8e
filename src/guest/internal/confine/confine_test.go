package confine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/guest/internal/wire"
)

func ptr(value int64) *int64 { return &value }

func probeResults(t *testing.T, j job) map[string]string {
	t.Helper()
	j.Do = "probes"
	output, err := start(t, j)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for line := range strings.Lines(output) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		results[name] = result
	}
	return results
}

// The golden table: every probe that is not named here is answered with EPERM.
func TestProbes(t *testing.T) {
	golden := map[string]string{
		"socket-1": "ok", "socketpair-unix": "ok", "clone3": "ENOSYS", "personality-ask": "ok", "ioctl-tcgets": "EBADF",
	}
	network := []string{"socket-2", "socket-10", "socket-16", "socketpair-inet"} // as without a filter
	free := probeResults(t, job{})
	for _, j := range []job{{Confine: true}, {Confine: true, Network: true}} {
		for name, got := range probeResults(t, j) {
			want := "EPERM"
			if expected, ok := golden[name]; ok {
				want = expected
			} else if j.Network && slices.Contains(network, name) {
				want = free[name]
			} else if name == "socket-16" {
				want = "EAFNOSUPPORT"
			}
			if got != want {
				t.Errorf("network %v: %s is answered with %s, want %s", j.Network, name, got, want)
			}
		}
	}
	// the same calls without the filter: if these failed too, the table would prove nothing
	for _, name := range []string{"socket-2", "unshare", "personality-odd", "socketpair-unix"} {
		if free[name] != "ok" {
			t.Errorf("without the filter, %s is answered with %s", name, free[name])
		}
	}
	for _, name := range []string{"ptrace", "keyctl", "kcmp", "process_vm_readv", "vmsplice", "name_to_handle_at", "clone-newuser", "clone3"} {
		if free[name] == "EPERM" || free[name] == "ENOSYS" {
			t.Errorf("without the filter, %s is answered with %s", name, free[name])
		}
	}
}

func TestEveryThreadIsConfined(t *testing.T) {
	for _, confine := range []bool{true, false} {
		output, err := start(t, job{Confine: confine, Do: "threads"})
		if err != nil {
			t.Fatal(err)
		}
		threads := strings.Split(strings.TrimSpace(output), "\n")
		if len(threads) < 8 {
			t.Errorf("only %d threads", len(threads))
		}
		for _, marks := range threads {
			if (marks == "NoNewPrivs:1 Seccomp:2") != confine {
				t.Errorf("confined %v: a thread has %s", confine, marks)
			}
		}
	}
}

func TestForeignABIsAreKilled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x32 and int80 are x86's")
	}
	if _, err := start(t, job{Do: "x32"}); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, job{Confine: true, Do: "x32"}); signalOf(err) != syscall.SIGSYS {
		t.Errorf("x32: %v", err)
	}
	int80 := compile(t, `int main() { int pid; __asm__ volatile("int $0x80" : "=a"(pid) : "a"(20)); return pid <= 0; }`)
	if _, err := start(t, job{Do: "run", Argv: []string{int80}}); err != nil {
		t.Skipf("this kernel has no 32-bit calls: %v", err)
	}
	_, err := start(t, job{Confine: true, Do: "run", Argv: []string{int80}})
	if err == nil || !strings.Contains(err.Error(), "[bad system call]") {
		t.Errorf("int80: %v", err)
	}
}

func compile(t *testing.T, source string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	program := t.TempDir() + "/program"
	gcc := exec.Command("gcc", "-pthread", "-x", "c", "-o", program, "-")
	gcc.Stdin = strings.NewReader(source)
	if output, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return program
}

func TestChildrenGetTheLimits(t *testing.T) {
	limits := wire.GuestLimits{OpenFiles: ptr(64), FileBytes: ptr(4096), Processes: ptr(10_000), DataBytes: ptr(1 << 50)}
	output, err := start(t, job{Confine: true, Limits: limits, Do: "run", Argv: []string{"cat", "/proc/self/limits"}})
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for line := range strings.Lines(output) {
		if len(line) > 66 { // fixed columns
			table[strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:67]), " ")
		}
	}
	for name, want := range map[string]string{
		"Max core file size": "0 0", "Max open files": "64 64", "Max file size": "4096 4096",
		"Max processes": "10000 10000", "Max data size": fmt.Sprint(1<<50, " ", 1<<50),
	} {
		if table[name] != want {
			t.Errorf("%s is %q, want %q", name, table[name], want)
		}
	}
	write := func(size int) error {
		_, err := start(t, job{Confine: true, Limits: limits, Do: "run", Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero >file", size)}})
		return err
	}
	if err := write(4096); err != nil {
		t.Error(err)
	}
	if write(4097) == nil {
		t.Error("a larger file was written")
	}
}

func TestLimitsThatCannotBeSet(t *testing.T) {
	if _, err := start(t, job{Confine: true, Limits: wire.GuestLimits{OpenFiles: ptr(-1)}, Do: "nothing"}); err == nil {
		t.Error("a negative limit was taken")
	}
	// more than the system allows is cut to what it allows
	if _, err := start(t, job{Confine: true, Limits: wire.GuestLimits{FileBytes: ptr(1 << 62)}, Do: "nothing"}); err != nil {
		t.Error(err)
	}
}

func TestHarden(t *testing.T) {
	output, err := start(t, job{Do: "dumpable"})
	if err != nil || output != "1 <nil> 0" {
		t.Errorf("%q, %v", output, err)
	}
}

const pythonProgram = `
import asyncio, concurrent.futures, multiprocessing, os, socket, subprocess, sys, tempfile, threading
def double(n): return 2 * n
async def main():
    left, right = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=left)
    right.send(b"hello\n")
    assert await reader.readline() == b"hello\n"
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=subprocess.PIPE)
    assert (await process.communicate())[0] == b"child\n"
    assert await asyncio.to_thread(double, 21) == 42
    path = os.path.join(tempfile.mkdtemp(), "s")
    async def serve(r, w): w.write(b"served"); w.close()
    async with await asyncio.start_unix_server(serve, path):
        r, w = await asyncio.open_unix_connection(path)
        assert await r.read() == b"served"
if __name__ == "__main__":
    threads = [threading.Thread(target=double, args=(n,)) for n in range(20)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert subprocess.run("echo a | cat", shell=True, capture_output=True).stdout == b"a\n"
    asyncio.run(main())
    with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(double, range(4)) == [0, 2, 4, 6]
    with concurrent.futures.ThreadPoolExecutor() as pool: assert list(pool.map(double, [3])) == [6]
    try: socket.socket(socket.AF_INET); print("inet")
    except PermissionError: print("fine")
`

const nodeProgram = `
const { Worker } = require('worker_threads');
const assert = require('assert');
assert.equal(require('child_process').execSync('echo child').toString(), 'child\n');
require('fs').promises.readFile('/proc/self/status').then(text => assert(text.length > 0)).then(() =>
  new Worker('require("worker_threads").parentPort.postMessage("fine")', { eval: true }).on('message', m => console.log(m)));
`

// What a sandbox is for has to work under the filter, with and without network.
func TestProgramsWork(t *testing.T) {
	thread := `#include <pthread.h>
#include <stdio.h>
void *run(void *x) { puts("fine"); return 0; }
int main() { pthread_t t; return pthread_create(&t, 0, run, 0) || pthread_join(t, 0); }`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bash := `diff <(echo a) <(echo a) && (sleep 0 & wait) && [[ $(seq 3 | tac | tr -d '\n') == 321 ]] && echo fine`
	for name, argv := range map[string][]string{
		"python3": {"python3", "-c", pythonProgram},
		"node":    {"node", "-e", nodeProgram},
		"bash":    {"bash", "-c", bash},
		"gcc":     {"sh", "-c", `printf '%s' "$1" | gcc -pthread -x c -o program - && ./program`, "sh", thread},
		"go":      {self, "-test.run=^TestHarden$", "-test.v"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Skip(err)
			}
			if name == "gcc" {
				compile(t, thread) // skips where there is none
			}
			for _, network := range []bool{false, true} {
				want := "fine"
				if network && name == "python3" {
					want = "inet"
				}
				if name == "go" {
					want = "--- PASS: TestHarden"
				}
				output, err := start(t, job{Confine: true, Network: network, Do: "run", Argv: argv})
				if err != nil || !strings.Contains(output, want) {
					t.Errorf("network %v: %q, %v", network, output, err)
				}
			}
		})
	}
}

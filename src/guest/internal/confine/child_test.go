package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// A filter stays for the life of a process, so the tests start this binary again, as the job below.
type job struct {
	Confine bool
	Limits  wire.GuestLimits
	Network bool
	Do      string // a key of jobs
	Argv    []string
}

const jobVariable = "HOLDFAST_CONFINE_TEST"

func TestMain(m *testing.M) {
	text := os.Getenv(jobVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	var ready sync.WaitGroup
	for range 8 { // threads that are there before the filter
		ready.Add(1)
		go func() {
			runtime.LockOSThread()
			ready.Done()
			select {}
		}()
	}
	ready.Wait()
	if j.Confine {
		if err := Apply(j.Limits, j.Network); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
	}
	jobs[j.Do](j)
}

// start runs a job and returns what it printed.
func start(t *testing.T, j job) (string, error) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), jobVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	child.Dir = t.TempDir()
	var output, problems bytes.Buffer
	child.Stdout, child.Stderr = &output, &problems
	if err := child.Run(); err != nil {
		return output.String(), fmt.Errorf("%w: %s%s", err, output.String(), problems.String())
	}
	return output.String(), nil
}

func signalOf(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

var jobs = map[string]func(job){
	"nothing": func(job) {},
	"run": func(j job) {
		child := exec.Command(j.Argv[0], j.Argv[1:]...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, jobVariable) })
		err := child.Run()
		if signal := signalOf(err); signal != 0 {
			fmt.Fprintf(os.Stderr, "[%v]", signal)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	},
	"threads": func(job) {
		statuses, _ := filepath.Glob("/proc/self/task/*/status")
		for _, path := range statuses {
			status, _ := os.ReadFile(path)
			var marks []string
			for line := range strings.Lines(string(status)) {
				if strings.HasPrefix(line, "NoNewPrivs:") || strings.HasPrefix(line, "Seccomp:") {
					marks = append(marks, strings.Join(strings.Fields(line), ""))
				}
			}
			fmt.Println(strings.Join(marks, " "))
		}
	},
	"x32":      func(job) { unix.RawSyscall(0x40000000|39, 0, 0, 0) },
	"dumpable": func(job) { fmt.Print(dumpable(), Harden(), dumpable()) },
	"probes": func(job) {
		for _, probe := range probes() {
			fmt.Println(probe.name, probe.run())
		}
	},
}

func dumpable() int {
	value, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		panic(err)
	}
	return value
}

type probe struct {
	name string
	run  func() string
}

// probes are calls that fail in one way or do no harm, where they are not denied.
func probes() []probe {
	try := func(name string, number uintptr, arguments ...uintptr) probe {
		return probe{name, func() string {
			all := append(arguments, make([]uintptr, 6)...)
			result, _, errno := unix.RawSyscall6(number, all[0], all[1], all[2], all[3], all[4], all[5])
			if errno != 0 {
				return unix.ErrnoName(errno)
			}
			if strings.HasPrefix(name, "socket-") {
				unix.Close(int(result))
			}
			return "ok"
		}}
	}
	var pair [2]int32
	pairOf := func(family uintptr) []uintptr {
		return []uintptr{family, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&pair))}
	}
	none := ^uintptr(0)
	all := []probe{
		try("socketpair-unix", unix.SYS_SOCKETPAIR, pairOf(unix.AF_UNIX)...),
		try("socketpair-inet", unix.SYS_SOCKETPAIR, pairOf(unix.AF_INET)...),
		try("io_uring_setup", unix.SYS_IO_URING_SETUP),
		try("io_uring_enter", unix.SYS_IO_URING_ENTER, none),
		try("io_uring_register", unix.SYS_IO_URING_REGISTER, none),
		try("ptrace", unix.SYS_PTRACE, unix.PTRACE_PEEKDATA, 0),
		try("process_vm_readv", unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid())),
		try("pidfd_getfd", unix.SYS_PIDFD_GETFD, none),
		try("kcmp", unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getpid()), 99),
		try("keyctl", unix.SYS_KEYCTL, 9999),
		try("add_key", unix.SYS_ADD_KEY),
		try("unshare", unix.SYS_UNSHARE, 0),
		try("unshare-user", unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		try("setns", unix.SYS_SETNS, none),
		try("mount", unix.SYS_MOUNT),
		try("umount2", unix.SYS_UMOUNT2),
		try("open_tree", unix.SYS_OPEN_TREE, none),
		try("fsopen", unix.SYS_FSOPEN),
		try("chroot", unix.SYS_CHROOT),
		try("bpf", unix.SYS_BPF, 9999),
		try("userfaultfd", unix.SYS_USERFAULTFD, 0xff),
		try("perf_event_open", unix.SYS_PERF_EVENT_OPEN),
		try("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, none),
		try("vmsplice", unix.SYS_VMSPLICE, none),
		try("clone-newuser", unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_FS), // EINVAL, where it is allowed
		try("clone3", unix.SYS_CLONE3),
		try("personality-ask", unix.SYS_PERSONALITY, 0xffffffff),
		try("personality-odd", unix.SYS_PERSONALITY, 0x0400000),
		try("ioctl-tcgets", unix.SYS_IOCTL, none, unix.TCGETS),
		try("ioctl-tiocsti", unix.SYS_IOCTL, none, unix.TIOCSTI),
	}
	for family := range uintptr(46) {
		all = append(all, try(fmt.Sprint("socket-", family), unix.SYS_SOCKET, family, unix.SOCK_DGRAM))
	}
	return all
}

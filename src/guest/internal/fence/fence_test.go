package fence

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var private = []string{"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}

func prefixes(texts ...string) (found []netip.Prefix) {
	for _, text := range texts {
		found = append(found, netip.MustParsePrefix(text))
	}
	return found
}

func TestHalves(t *testing.T) {
	for whole, want := range map[string][]string{
		"172.17.0.0/16": {"172.17.0.0/17", "172.17.128.0/17"},
		"0.0.0.0/0":     {"0.0.0.0/1", "128.0.0.0/1"},
		"10.1.2.4/31":   {"10.1.2.4/32", "10.1.2.5/32"},
		"10.1.2.4/32":   nil,
		"fd00::/64":     {"fd00::/65", "fd00::8000:0:0:0/65"},
	} {
		var got []string
		for _, one := range halves(netip.MustParsePrefix(whole)) {
			got = append(got, one.to.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", whole, got, want)
		}
	}
}

func TestResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 10.9.9.9\nnameserver 10.0.0.2\nnameserver 127.0.0.11\nnameserver 169.254.169.254\n" +
		"nameserver fe80::1%eth0\nnameserver nonsense\nsearch nameserver\nnameserver fd00::53\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := resolvers(file)
	if want := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::53")}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%v, %v", found, err)
	}
	if found, err = resolvers(file + "x"); err != nil || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// TestMain also is the process that a test starts in a network of its own.
func TestMain(m *testing.M) {
	if argument, asked := os.LookupEnv("FENCE_PLAN"); asked {
		if err := Fence(argument); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
	} else {
		os.Exit(m.Run())
	}
}

// inNetwork gives this thread a network namespace with a net to neighbours and a default route. A thread that is locked
// and not let go of ends with the test, and the namespace with it.
func inNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network namespace here")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	for _, line := range []string{
		"link add veth0 type veth peer name veth1", "link set lo up", "link set veth0 up", "link set veth1 up",
		"addr add 172.17.0.9/16 dev veth0", "route add default via 172.17.0.1 dev veth0",
		"-6 addr add fd17::9/64 dev veth0 nodad", "-6 route add default via fd17::1 dev veth0",
	} {
		if said, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %s", line, said)
		}
	}
}

// connect asks the kernel: a datagram's connect looks up the route, and sends nothing.
func connect(address string) error {
	to := netip.MustParseAddr(address)
	family, socket := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 9})
	if to.Is6() {
		family, socket = unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: to.As16()}
	} else {
		socket.(*unix.SockaddrInet4).Addr = to.As4()
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, socket)
}

func fenced(t *testing.T, deny, allow []string) error {
	t.Helper()
	text, err := json.Marshal(plan{Deny: prefixes(deny...), Allow: prefixes(allow...)})
	if err != nil {
		t.Fatal(err)
	}
	self := exec.Command("/proc/self/exe")
	self.Env = append(os.Environ(), "FENCE_PLAN="+string(text))
	said, err := self.CombinedOutput()
	if err != nil {
		return errors.New(string(said))
	}
	return nil
}

func TestFence(t *testing.T) {
	const away, neighbour, machine, cloud = "192.0.2.1", "172.17.0.10", "172.17.0.1", "169.254.169.254"
	const away6, neighbour6, machine6, private6 = "2001:db8::1", "fd17::10", "fd17::1", "fd99::1"
	all := []string{away, neighbour, machine, cloud, "10.1.2.3", "10.1.2.4", away6, neighbour6, machine6, private6}
	for name, c := range map[string]struct{ deny, allow, reached []string }{
		"nothing closed":    {nil, nil, all},
		"private":           {private, nil, []string{away, away6}},
		"private but one":   {private, []string{"10.1.2.3/32"}, []string{away, away6, "10.1.2.3"}},
		"a neighbour":       {private, []string{neighbour + "/32", "fd17::10/128"}, []string{away, away6, neighbour, neighbour6}},
		"all":               {[]string{"0.0.0.0/0", "::/0"}, nil, nil},
		"all but one":       {[]string{"0.0.0.0/0", "::/0"}, []string{away + "/32"}, []string{away}},
		"the machine alone": {[]string{machine + "/32"}, nil, slices.DeleteFunc(slices.Clone(all), func(one string) bool { return one == machine })},
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t)
			for range 2 { // again is fine
				if err := fenced(t, c.deny, c.allow); err != nil {
					t.Error(err)
				}
			}
			for _, one := range all {
				err := connect(one)
				if want := slices.Contains(c.reached, one); want && err != nil || !want && err != syscall.EACCES {
					t.Errorf("%s: %v, want it reached: %v", one, err, want)
				}
			}
		})
	}
}

func TestWhatCannotBeClosedIsAnError(t *testing.T) {
	if err := Fence("{"); err == nil {
		t.Error("a plan that is none")
	}
	inNetwork(t)
	// Without the right to change routes, which is what a program inside has.
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	if err := fenced(t, private, nil); err == nil || !strings.Contains(err.Error(), "operation not permitted") {
		t.Error(err)
	}
	if err := connect("10.1.2.3"); err != nil {
		t.Error("it was closed all the same: ", err)
	}
}

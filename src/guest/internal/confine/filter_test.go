package confine

import (
	"testing"

	"golang.org/x/sys/unix"
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	nosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	// what useradd and groupadd take for a kernel without auditing
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
)

// data is struct seccomp_data.
type data struct {
	number, audit uint32
	arguments     [6]uint64
}

func (d data) word(offset uint32) uint32 {
	switch {
	case offset == offsetNumber:
		return d.number
	case offset == offsetAudit:
		return d.audit
	case offset >= offsetArguments && offset < offsetArguments+48 && offset%4 == 0:
		return uint32(d.arguments[(offset-offsetArguments)/8] >> (offset % 8 * 8))
	}
	panic("a load that the kernel would refuse")
}

// decide runs a program as the kernel does.
func decide(filter []unix.SockFilter, d data) uint32 {
	var accumulator uint32
	for at := 0; ; at++ {
		one := filter[at]
		taken := false
		switch one.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = d.word(one.K)
			continue
		case unix.BPF_RET | unix.BPF_K:
			return one.K
		case unix.BPF_JMP | unix.BPF_JA | unix.BPF_K:
			at += int(one.K)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = accumulator == one.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = accumulator >= one.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = accumulator&one.K != 0
		default:
			panic("an instruction that build does not use")
		}
		if taken {
			at += int(one.Jt)
		} else {
			at += int(one.Jf)
		}
	}
}

// expected is the policy again, written as plain conditions.
func expected(name string, arch architecture, network bool, d data) uint32 {
	low := func(index int) uint32 { return uint32(d.arguments[index]) }
	if d.audit != arch.audit || d.number == absent || (name == "amd64" && d.number >= 0x40000000) {
		return kill
	}
	for _, one := range denied {
		if arch.number(one) == d.number {
			return deny
		}
	}
	refused := false
	switch d.number {
	case arch.number(socket), arch.number(socketpair):
		family := low(0)
		internet := family == unix.AF_INET || family == unix.AF_INET6 || family == unix.AF_NETLINK
		refused = family != unix.AF_UNIX && !(network && internet)
		if refused && family == unix.AF_NETLINK {
			return unknown
		}
	case arch.number(clone):
		refused = low(0)&cloneNamespaces != 0
	case arch.number(clone3):
		return nosys
	case arch.number(personality):
		refused = low(0) != 0 && low(0) != 0xffffffff && low(0) != addrNoRandomize
	case arch.number(ioctl):
		refused = low(1) == unix.TIOCSTI || low(1) == tioclinux
	}
	if refused {
		return deny
	}
	return allow
}

func TestDecisions(t *testing.T) {
	const high = 0xdead_0000_0000
	for name, arch := range architectures {
		foreign := uint32(unix.AUDIT_ARCH_I386)
		if name == "arm64" {
			foreign = unix.AUDIT_ARCH_ARM
		}
		for _, step := range []struct {
			what    string
			network bool
			audit   uint32
			number  uint32
			first   uint64
			second  uint64
			want    uint32
		}{
			{"read", false, arch.audit, 63, 0, 0, allow},
			{"32-bit ABI", false, foreign, 63, 0, 0, kill},
			{"unix socket", false, arch.audit, arch.number(socket), unix.AF_UNIX, 0, allow},
			{"unix socket, dirty register", false, arch.audit, arch.number(socket), high | unix.AF_UNIX, 0, allow},
			{"inet socket", false, arch.audit, arch.number(socket), unix.AF_INET, 0, deny},
			{"inet socket, dirty register", false, arch.audit, arch.number(socket), high | unix.AF_INET, 0, deny},
			{"netlink socket", false, arch.audit, arch.number(socket), unix.AF_NETLINK, 0, unknown},
			{"inet socket, network", true, arch.audit, arch.number(socket), unix.AF_INET, 0, allow},
			{"vsock, network", true, arch.audit, arch.number(socket), unix.AF_VSOCK, 0, deny},
			{"packet, network", true, arch.audit, arch.number(socket), unix.AF_PACKET, 0, deny},
			{"inet socketpair", false, arch.audit, arch.number(socketpair), unix.AF_INET, 0, deny},
			{"fork", false, arch.audit, arch.number(clone), uint64(unix.SIGCHLD), 0, allow},
			{"thread", false, arch.audit, arch.number(clone), unix.CLONE_VM | unix.CLONE_THREAD, 0, allow},
			{"user namespace", false, arch.audit, arch.number(clone), unix.CLONE_NEWUSER | uint64(unix.SIGCHLD), 0, deny},
			{"clone3", false, arch.audit, arch.number(clone3), 0, 0, nosys},
			{"personality, asked", false, arch.audit, arch.number(personality), 0xffffffff, 0, allow},
			{"READ_IMPLIES_EXEC", false, arch.audit, arch.number(personality), 0x0400000, 0, deny},
			{"TCGETS", false, arch.audit, arch.number(ioctl), 0, unix.TCGETS, allow},
			{"TIOCSTI, dirty register", false, arch.audit, arch.number(ioctl), 0, high | unix.TIOCSTI, deny},
			{"ptrace, network", true, arch.audit, arch.number(call{"ptrace", 101, 117}), 0, 0, deny},
		} {
			filter, err := build(arch, step.network)
			if err != nil {
				t.Fatal(err)
			}
			got := decide(filter, data{step.number, step.audit, [6]uint64{step.first, step.second}})
			if got != step.want {
				t.Errorf("%s, %s: %#x, want %#x", name, step.what, got, step.want)
			}
		}
	}
	filter, err := build(architectures["amd64"], true)
	if err != nil {
		t.Fatal(err)
	}
	if got := decide(filter, data{number: 0x40000000 | 39, audit: unix.AUDIT_ARCH_X86_64}); got != kill {
		t.Errorf("x32: %#x", got)
	}
}

// FuzzFilter compares the assembled program with the policy in plain words.
func FuzzFilter(f *testing.F) {
	for _, number := range []uint32{0, 16, 29, 41, 56, 92, 135, 198, 199, 220, 425, 435, 0x40000029, 0x7fffffff, absent} {
		for _, argument := range []uint64{0, 1, 2, 16, 40, 0x10000000, 0x5412, 0x541c, 0xffffffff, 1 << 32, 1<<32 | 2} {
			f.Add(number, uint32(0), argument, argument)
		}
	}
	f.Add(uint32(0), uint32(unix.AUDIT_ARCH_I386), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, number, audit uint32, first, second uint64) {
		for name, arch := range architectures {
			for _, network := range []bool{false, true} {
				filter, err := build(arch, network)
				if err != nil {
					t.Fatal(err)
				}
				d := data{number, audit, [6]uint64{first, second}}
				if audit == 0 {
					d.audit = arch.audit
				}
				if got, want := decide(filter, d), expected(name, arch, network, d); got != want {
					t.Errorf("%s, network %v, %+v: %#x, want %#x", name, network, d, got, want)
				}
			}
		}
	})
}

func TestEveryNumberOfEveryArchitecture(t *testing.T) {
	for name, arch := range architectures {
		for _, network := range []bool{false, true} {
			filter, err := build(arch, network)
			if err != nil {
				t.Fatal(err)
			}
			for number := range uint32(1024) {
				d := data{number: number, audit: arch.audit}
				if got, want := decide(filter, d), expected(name, arch, network, d); got != want {
					t.Errorf("%s, %d: %#x, want %#x", name, number, got, want)
				}
			}
		}
	}
}

func TestJumpsThatCannotBeMade(t *testing.T) {
	missing := program{}
	missing.jump("nowhere")
	far := program{}
	far.ifEqual(1, "end")
	for range 256 {
		far.answer(allow)
	}
	far.label("end")
	for _, p := range []program{missing, far} {
		if _, err := p.assemble(); err == nil {
			t.Error("assembled")
		}
	}
}

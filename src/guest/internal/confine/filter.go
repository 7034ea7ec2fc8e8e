package confine

import "golang.org/x/sys/unix"

// offsets in struct seccomp_data; both architectures are little endian, so an argument's low half comes first
const (
	offsetNumber    = 0
	offsetAudit     = 4
	offsetArguments = 16
)

// new namespaces that clone can make; the bit of CLONE_NEWTIME means something else there
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// from linux/personality.h and asm-generic/ioctls.h
const (
	addrNoRandomize = 0x0040000
	tioclinux       = 0x541c
)

// build makes the filter. What it does not name is allowed: it stands behind the engine's own walls, and a
// list of all that programs need would break some of them with every new libc.
//
// Only the low halves of arguments are looked at. The kernel takes a family, a personality and an ioctl as
// 32 bits and drops the high half, as clone does with its flags; so a high half that is not zero changes
// nothing, and to compare it would only open a way around a deny rule.
func build(arch architecture, network bool) ([]unix.SockFilter, error) {
	p := program{}
	p.load(offsetAudit)
	p.ifEqual(arch.audit, "native")
	p.jump("kill")
	p.label("native")
	p.load(offsetNumber)
	p.ifAtLeast(arch.foreignFrom, "kill")
	for _, one := range denied {
		if number := arch.number(one); number != absent {
			p.ifEqual(number, "deny")
		}
	}
	p.ifEqual(arch.number(socket), "socket")
	p.ifEqual(arch.number(socketpair), "socket")
	p.ifEqual(arch.number(clone), "clone")
	p.ifEqual(arch.number(clone3), "missing")
	p.ifEqual(arch.number(personality), "personality")
	p.ifEqual(arch.number(ioctl), "ioctl")
	p.jump("allow")

	p.label("socket")
	p.load(argument(0))
	p.ifEqual(unix.AF_UNIX, "allow")
	if network {
		p.ifEqual(unix.AF_INET, "allow")
		p.ifEqual(unix.AF_INET6, "allow")
		p.ifEqual(unix.AF_NETLINK, "allow") // libc asks it for addresses and routes
	} else {
		p.ifEqual(unix.AF_NETLINK, "unknown")
	}
	p.jump("deny")

	p.label("clone")
	p.load(argument(0))
	p.ifAnyBit(cloneNamespaces, "deny")
	p.jump("allow")

	p.label("personality")
	p.load(argument(0))
	p.ifEqual(0, "allow")
	p.ifEqual(0xffffffff, "allow")      // only asks
	p.ifEqual(addrNoRandomize, "allow") // sanitizers and some language runtimes want it
	p.jump("deny")

	p.label("ioctl") // typing into a terminal that is shared with the host
	p.load(argument(1))
	p.ifEqual(unix.TIOCSTI, "deny")
	p.ifEqual(tioclinux, "deny")

	p.label("allow")
	p.answer(unix.SECCOMP_RET_ALLOW)
	p.label("deny")
	p.answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	p.label("missing") // its flags are behind a pointer; libc falls back to clone, where they can be seen
	p.answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	p.label("unknown") // as a kernel without it answers: where auditing is refused, useradd and groupadd give up
	p.answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT))
	p.label("kill")
	p.answer(unix.SECCOMP_RET_KILL_PROCESS)
	return p.assemble()
}

func argument(index uint32) uint32 { return offsetArguments + 8*index }

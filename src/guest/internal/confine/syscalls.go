package confine

import "golang.org/x/sys/unix"

// absent is the number of a system call that an architecture does not have.
const absent = ^uint32(0)

// call is a system call with its number on each architecture. Both are here, and not in files that only
// one of them compiles, so that the filter of both is tested everywhere.
type call struct {
	name         string
	amd64, arm64 uint32
}

type architecture struct {
	audit  uint32
	number func(call) uint32
	// system calls from this number on are those of a foreign ABI under the same audit architecture
	foreignFrom uint32
}

var architectures = map[string]architecture{
	// 0x40000000 marks x32
	"amd64": {unix.AUDIT_ARCH_X86_64, func(c call) uint32 { return c.amd64 }, 0x40000000},
	"arm64": {unix.AUDIT_ARCH_AARCH64, func(c call) uint32 { return c.arm64 }, absent},
}

// Calls whose arguments decide.
var (
	socket      = call{"socket", 41, 198}
	socketpair  = call{"socketpair", 53, 199}
	clone       = call{"clone", 56, 220}
	clone3      = call{"clone3", 435, 435}
	personality = call{"personality", 135, 92}
	ioctl       = call{"ioctl", 16, 29}
)

// denied calls fail with EPERM, which is what they answer to an unprivileged program in most places anyway.
var denied = []call{
	// other ways to do what is filtered here, or large and often exploited parts of the kernel
	{"io_uring_setup", 425, 425},
	{"io_uring_enter", 426, 426},
	{"io_uring_register", 427, 427},
	{"bpf", 321, 280},
	{"perf_event_open", 298, 241},
	{"userfaultfd", 323, 282},
	{"vmsplice", 278, 75},
	{"modify_ldt", 154, absent},
	{"iopl", 172, absent},
	{"ioperm", 173, absent},
	// into other processes of the same user
	{"ptrace", 101, 117},
	{"process_vm_readv", 310, 270},
	{"process_vm_writev", 311, 271},
	{"pidfd_getfd", 438, 438},
	{"kcmp", 312, 272},
	// keyrings have no namespace
	{"add_key", 248, 217},
	{"request_key", 249, 218},
	{"keyctl", 250, 219},
	// files around path resolution
	{"name_to_handle_at", 303, 264},
	{"open_by_handle_at", 304, 265},
	// mounts and namespaces
	{"mount", 165, 40},
	{"umount2", 166, 39},
	{"pivot_root", 155, 41},
	{"chroot", 161, 51},
	{"move_mount", 429, 429},
	{"fsopen", 430, 430},
	{"fsconfig", 431, 431},
	{"fsmount", 432, 432},
	{"fspick", 433, 433},
	{"open_tree", 428, 428},
	{"open_tree_attr", 467, 467},
	{"mount_setattr", 442, 442},
	{"unshare", 272, 97},
	{"setns", 308, 268},
	// the machine
	{"kexec_load", 246, 104},
	{"kexec_file_load", 320, 294},
	{"init_module", 175, 105},
	{"finit_module", 313, 273},
	{"delete_module", 176, 106},
	{"swapon", 167, 224},
	{"swapoff", 168, 225},
	{"reboot", 169, 142},
	{"acct", 163, 89},
	{"quotactl", 179, 60},
	{"quotactl_fd", 443, 443},
	{"syslog", 103, 116},
	{"settimeofday", 164, 170},
	{"clock_settime", 227, 112},
}

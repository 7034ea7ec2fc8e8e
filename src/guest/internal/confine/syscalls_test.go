package confine

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The table has both architectures' numbers; x/sys knows those of the one that this is compiled for.
func TestNumbersAreTheKernels(t *testing.T) {
	kernel := map[string]uint32{
		"socket":            unix.SYS_SOCKET,
		"socketpair":        unix.SYS_SOCKETPAIR,
		"clone":             unix.SYS_CLONE,
		"clone3":            unix.SYS_CLONE3,
		"personality":       unix.SYS_PERSONALITY,
		"ioctl":             unix.SYS_IOCTL,
		"io_uring_setup":    unix.SYS_IO_URING_SETUP,
		"io_uring_enter":    unix.SYS_IO_URING_ENTER,
		"io_uring_register": unix.SYS_IO_URING_REGISTER,
		"bpf":               unix.SYS_BPF,
		"perf_event_open":   unix.SYS_PERF_EVENT_OPEN,
		"userfaultfd":       unix.SYS_USERFAULTFD,
		"vmsplice":          unix.SYS_VMSPLICE,
		"ptrace":            unix.SYS_PTRACE,
		"process_vm_readv":  unix.SYS_PROCESS_VM_READV,
		"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
		"pidfd_getfd":       unix.SYS_PIDFD_GETFD,
		"kcmp":              unix.SYS_KCMP,
		"add_key":           unix.SYS_ADD_KEY,
		"request_key":       unix.SYS_REQUEST_KEY,
		"keyctl":            unix.SYS_KEYCTL,
		"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"mount":             unix.SYS_MOUNT,
		"umount2":           unix.SYS_UMOUNT2,
		"pivot_root":        unix.SYS_PIVOT_ROOT,
		"chroot":            unix.SYS_CHROOT,
		"move_mount":        unix.SYS_MOVE_MOUNT,
		"fsopen":            unix.SYS_FSOPEN,
		"fsconfig":          unix.SYS_FSCONFIG,
		"fsmount":           unix.SYS_FSMOUNT,
		"fspick":            unix.SYS_FSPICK,
		"open_tree":         unix.SYS_OPEN_TREE,
		"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
		"mount_setattr":     unix.SYS_MOUNT_SETATTR,
		"unshare":           unix.SYS_UNSHARE,
		"setns":             unix.SYS_SETNS,
		"kexec_load":        unix.SYS_KEXEC_LOAD,
		"kexec_file_load":   unix.SYS_KEXEC_FILE_LOAD,
		"init_module":       unix.SYS_INIT_MODULE,
		"finit_module":      unix.SYS_FINIT_MODULE,
		"delete_module":     unix.SYS_DELETE_MODULE,
		"swapon":            unix.SYS_SWAPON,
		"swapoff":           unix.SYS_SWAPOFF,
		"reboot":            unix.SYS_REBOOT,
		"acct":              unix.SYS_ACCT,
		"quotactl":          unix.SYS_QUOTACTL,
		"quotactl_fd":       unix.SYS_QUOTACTL_FD,
		"syslog":            unix.SYS_SYSLOG,
		"settimeofday":      unix.SYS_SETTIMEOFDAY,
		"clock_settime":     unix.SYS_CLOCK_SETTIME,
	}
	arch := architectures[runtime.GOARCH]
	for _, one := range append(denied, socket, socketpair, clone, clone3, personality, ioctl) {
		number, known := kernel[one.name]
		if one.arm64 == absent {
			continue // only x86 has it
		}
		if !known || arch.number(one) != number {
			t.Errorf("%s is %d, the table says %d", one.name, number, arch.number(one))
		}
	}
}

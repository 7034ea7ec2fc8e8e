"""The seccomp profile of our containers. The daemon's own is weak on old versions (io_uring, VSOCK and 32-bit calls are
open on 20.10), so nothing is left to it: one allowlist, one architecture, and sockets by family.

The guest puts its own, narrower filter on every program too; this one also covers what enters by `docker exec`.
"""

from __future__ import annotations

import json
from typing import Any

_ARCHITECTURES = {"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_CLONE_NEW = 0x7E020000  # every CLONE_NEW* flag

_ALLOWED = """
accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat
faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait
futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer
getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit get_robust_list
getrusage getsid getsockname getsockopt get_thread_area gettid gettimeofday getuid getxattr inotify_add_watch
inotify_init inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy io_getevents io_pgetevents ioprio_get
ioprio_set io_setup io_submit kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier
memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr
mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock
munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev
pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename
renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam sched_get_priority_max
sched_get_priority_min sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto setfsgid
setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit
set_robust_list setsid setsockopt set_thread_area set_tid_address setuid setxattr shmat shmctl shmdt shmget shutdown
sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork wait4 waitid write
writev
"""


def profile(arch: str, network: bool) -> str:
    """The profile as the daemon's API takes it: JSON text."""
    families = [_AF_UNIX, *((_AF_INET, _AF_INET6, _AF_NETLINK) if network else ())]
    rules: list[dict[str, Any]] = [
        {"names": _ALLOWED.split(), "action": "SCMP_ACT_ALLOW"},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [_masked(0, _CLONE_NEW, 0)]},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},  # ENOSYS: libraries then use clone
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [_equal(0, 0)]},
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [_equal(0, 0xFFFFFFFF)]},
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [_equal(0, 0x0040000)]},
    ]
    for family in families:
        rules.append({"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": [_equal(0, family)]})
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": [_ARCHITECTURES[arch]],
            "syscalls": rules,
        }
    )


def _equal(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}

package files

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// smallBench has a workspace of 1 MiB and 64 inodes. Only the thread of this test sees the mount.
func smallBench(t *testing.T) *bench {
	b := newBench(t, Limits{})
	runtime.LockOSThread() // and never unlocked: the thread ends with its mounts
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("a file system of our own needs root: %v", err)
	}
	b.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err := unix.Mount("tmpfs", b.real("."), "tmpfs", 0, "size=1m,nr_inodes=64"); err != nil {
		t.Skipf("a file system of our own needs root: %v", err)
	}
	workspace, err := Open(b.real("."), Limits{})
	b.must(err)
	t.Cleanup(func() {
		workspace.Close()
		b.must(unix.Unmount(b.real("."), unix.MNT_DETACH))
	})
	b.Workspace = workspace
	return b
}

func TestAFullWorkspace(t *testing.T) {
	b := smallBench(t)
	b.must(b.put("old", "old"))
	b.must(b.put("tree/a/b/c/file", ""))
	large := strings.Repeat("x", 2<<20)
	b.want(wire.ErrorCodeWorkspaceFull, b.put("old", large))
	b.wantContent("old", "old")
	b.wantNoParts(".")
	b.must(os.WriteFile(b.real("fits"), []byte(large[:900<<10]), 0o644))
	b.want(wire.ErrorCodeWorkspaceFull, b.put("more", large[:200<<10]))
	if _, err := b.ls("", true); err != nil {
		t.Error(err)
	}
	b.must(b.rm("tree", true))
	b.must(b.rm("fits", false))
	b.must(b.put("more", large[:200<<10]))
}

func TestAWorkspaceWithoutInodes(t *testing.T) {
	b := smallBench(t)
	for i := 0; ; i++ {
		err := os.Mkdir(b.real("d"+strings.Repeat("/d", i)), 0o755)
		if err != nil {
			break
		}
	}
	b.want(wire.ErrorCodeWorkspaceFull, b.put("new", ""))
	_, err := b.Mkdir(wire.FileMkdir{Path: "x"})
	b.want(wire.ErrorCodeWorkspaceFull, err)
	_, _, freeFiles, err := b.Space()
	b.must(err)
	if freeFiles != 0 {
		t.Errorf("%d inodes are free", freeFiles)
	}
	b.must(b.rm("d", true))
	b.must(b.put("new", ""))
	b.limits.Files = 3 // root, new, and one more
	b.must(b.put("third", ""))
	b.want(wire.ErrorCodeTooManyFiles, b.put("fourth", ""))
	b.must(b.put("third", "replaced"))
}

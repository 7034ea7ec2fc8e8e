package files

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const rounds = 300

// while runs a tenant's step again and again during the rounds of ours. There are more rounds until both
// outcomes were seen, since a race in which nothing ever worked, or nothing was ever refused, proves nothing.
func while(t *testing.T, tenant func(), ours func() error) {
	t.Helper()
	ended, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ended.Err() == nil {
			tenant()
		}
	})
	worked, refused := 0, 0
	for round := 0; round < rounds || (min(worked, refused) == 0 && round < 100*rounds); round++ {
		if ours() == nil {
			worked++
		} else {
			refused++
		}
	}
	end()
	group.Wait()
	if worked == 0 || refused == 0 {
		t.Errorf("%d worked, %d were refused", worked, refused)
	}
}

// swapper swaps a name, by one atomic exchange, for a link that leads outside, and back. When the link is
// gone (deleted in the tree, or replaced by a write that saw a file there), it makes a new one.
func swapper(b *bench, name, target string) func() {
	isLink := func(name string) bool {
		info, err := os.Lstat(b.real(name))
		return err == nil && info.Mode()&os.ModeSymlink != 0
	}
	return func() {
		if !isLink("link") && !isLink(name) {
			_ = os.RemoveAll(b.real("link"))
			_ = os.Symlink(target, b.real("link"))
		}
		_ = unix.Renameat2(unix.AT_FDCWD, b.real(name), unix.AT_FDCWD, b.real("link"), unix.RENAME_EXCHANGE)
	}
}

func TestDirectorySwappedForALinkOutside(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("dir/file", ""))
	while(t, swapper(b, "dir", ".."), func() error {
		wrote := b.put("dir/secret", "inside")
		if content, _ := b.get("dir/secret"); content == secret {
			t.Fatal("read from outside")
		}
		entries, _ := b.ls("dir", true)
		for _, entry := range entries {
			if entry.SizeBytes == int64(len(secret)) && entry.Kind == wire.FileKindFile {
				t.Fatal("listed outside")
			}
		}
		_, _ = b.Move(wire.FileMove{Source: "dir/secret", Destination: "dir/moved", Overwrite: true})
		_ = b.rm("dir/secret", false)
		_ = b.put("dir/new/file", "")
		_ = b.rm("dir/new", true)
		return wrote
	})
	b.wantIntact()
}

func TestFileSwappedForALinkOutside(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("file", "inside"))
	while(t, swapper(b, "file", "../secret"), func() error {
		content, err := b.get("file")
		if content == secret {
			t.Fatal("read from outside")
		}
		_ = b.put("file", "inside")
		_, _ = b.Stat(wire.FileStat{Path: "file"})
		return err
	})
	b.wantIntact()
}

func TestTreeSwappedForALinkOutsideWhileItIsDeleted(t *testing.T) {
	b := newBench(t, Limits{})
	while(t, swapper(b, "tree/a", "../.."), func() error {
		err := b.put("tree/a/b/c/file", "")
		_ = b.rm("tree", true)
		return err
	})
	b.wantIntact()
}

func TestOneOfManyWinsWithoutOverwrite(t *testing.T) {
	b := newBench(t, Limits{})
	for range 50 {
		var group sync.WaitGroup
		var lock sync.Mutex
		won := 0
		for range 8 {
			group.Go(func() {
				_, err := b.Write(wire.FileWrite{Path: "d/one"}, bytes.NewReader(nil))
				lock.Lock()
				defer lock.Unlock()
				if err == nil {
					won++
				} else {
					b.want(wire.ErrorCodeAlreadyExists, err)
				}
			})
		}
		group.Wait()
		if won != 1 {
			t.Fatalf("%d won", won)
		}
		b.must(b.rm("d", true))
	}
}

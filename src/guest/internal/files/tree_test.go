package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// deepChain makes directories, one in the other, deeper than any path can name.
func deepChain(b *bench, name string, depth int) {
	b.must(os.Mkdir(b.real(name), 0o755))
	fd, err := unix.Open(b.real(name), unix.O_PATH, 0)
	b.must(err)
	for range depth {
		b.must(unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_PATH, 0)
		b.must(err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func TestListNamesKindsAndLinks(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("dir/sub/\x00fffile", "abc"))
	b.must(os.Symlink("..", b.real("dir/up")))
	b.must(os.Symlink("/", b.real("dir/root")))
	entries, err := b.ls("", true)
	b.must(err)
	var got []string
	for _, entry := range entries {
		got = append(got, fmt.Sprintf("%s %q", entry.Kind, entry.Path))
	}
	slices.Sort(got)
	want := []string{`directory "dir"`, `directory "dir/sub"`, `file "dir/sub/\x00fffile"`, `symlink "dir/root"`, `symlink "dir/up"`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if entries, err = b.ls("dir/sub", false); err != nil || len(entries) != 1 || entries[0].SizeBytes != 3 || entries[0].ModifiedMS == 0 {
		t.Errorf("%v, %v", entries, err)
	}
	_, err = b.ls("dir/sub/\x00fffile", false)
	b.want(wire.ErrorCodeNotADirectory, err)
	_, err = b.ls("missing", false)
	b.want(wire.ErrorCodeNotFound, err)
}

func TestListIsBounded(t *testing.T) {
	b := newBench(t, Limits{})
	const files = 3*wire.PageEntries + 1
	for i := range files {
		b.must(os.WriteFile(b.real(fmt.Sprint(i)), nil, 0o644))
	}
	for maxEntries, truncated := range map[int64]bool{0: true, 1: true, files - 1: true, files: false, files + 1: false} {
		var count int64
		listed, err := b.List(wire.FileList{MaxEntries: maxEntries}, func(page []wire.FileEntry) error {
			if len(page) > wire.PageEntries || len(page) == 0 {
				t.Errorf("page of %d", len(page))
			}
			count += int64(len(page))
			return nil
		})
		b.must(err)
		if listed.Count != count || count != min(maxEntries, files) || listed.Truncated != truncated {
			t.Errorf("max %d: sent %d, said %+v", maxEntries, count, listed)
		}
	}
	_, err := b.List(wire.FileList{MaxEntries: -1}, nil)
	b.want(wire.ErrorCodeInvalidRequest, err)
	gone := errors.New("the host is gone")
	if _, err := b.List(wire.FileList{MaxEntries: 9}, func([]wire.FileEntry) error { return gone }); err != gone {
		t.Errorf("the callback's error became %v", err)
	}
}

func TestAPageFitsIntoAMessage(t *testing.T) {
	b := newBench(t, Limits{})
	dir := strings.Repeat(strings.Repeat("\x00ff", 250)+"/", 14)
	for i := range wire.PageEntries + 1 {
		b.must(b.put(fmt.Sprint(dir, strings.Repeat("\x00ff", 250), i), ""))
	}
	count := 0
	_, err := b.List(wire.FileList{Path: dir, MaxEntries: 1000}, func(page []wire.FileEntry) error {
		count += len(page)
		if message, err := json.Marshal(wire.FilePage{Entries: page}); err != nil || len(message) > wire.MaxMessageBytes-1000 {
			t.Errorf("a page of %d bytes, %v", len(message), err)
		}
		return nil
	})
	b.must(err)
	if count != wire.PageEntries+1 {
		t.Errorf("%d entries", count)
	}
}

func TestListOfADeepTreeEnds(t *testing.T) {
	b := newBench(t, Limits{})
	deepChain(b, "deep", 10_000)
	listed, err := b.List(wire.FileList{Recursive: true, MaxEntries: 1 << 20}, func([]wire.FileEntry) error { return nil })
	b.must(err)
	if listed.Count != maxListDepth || !listed.Truncated {
		t.Errorf("%+v", listed)
	}
	entries, err := b.ls("deep"+strings.Repeat("/d", 500), false) // further down by name
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	b.must(b.rm("deep", true))
	b.must(b.put("deep", "")) // the name is free
}

func TestDelete(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("dir/file", "x"))
	b.must(os.Symlink("dir", b.real("link")))
	b.must(os.Symlink("../secret", b.real("out")))
	b.must(os.Mkdir(b.real("empty"), 0o755))
	for _, path := range []string{".", b.path, b.path + "/", "dir/.."} {
		b.want(wire.ErrorCodePathNotAllowed, b.rm(path, true))
	}
	b.want(wire.ErrorCodeDirectoryNotEmpty, b.rm("dir", false))
	b.want(wire.ErrorCodeNotFound, b.rm("missing", true))
	b.want(wire.ErrorCodeNotFound, b.rm("missing/x", true))
	b.want(wire.ErrorCodeNotADirectory, b.rm("dir/file/x", true))
	for _, path := range []string{"link", "out", "empty"} {
		b.must(b.rm(path, path == "link"))
	}
	b.wantContent("dir/file", "x")
	b.must(b.rm("dir", true))
	if entries, err := b.ls("", true); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	b.wantIntact()
}

func TestDeleteOfALargeTree(t *testing.T) {
	b := newBench(t, Limits{})
	for i := range 2000 {
		b.must(b.put(fmt.Sprintf("tree/%d/%d/%d/file", i%3, i%7, i%40), ""))
		b.must(os.WriteFile(b.real(fmt.Sprintf("tree/0/%d-file", i)), nil, 0o644))
	}
	b.must(os.Symlink("../..", b.real("tree/1/out")))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Delete(ended, wire.FileDelete{Path: "tree", Recursive: true}); err != context.Canceled {
		t.Errorf("a cancelled delete says %v", err)
	}
	b.must(b.rm("tree", true))
	b.wantIntact()
}

// A thread with another fsuid has lost root's right to pass any mode.
func TestDeleteOfLockedDirectories(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(os.MkdirAll(b.real("tree/a/b/c"), 0o755))
	b.must(os.WriteFile(b.real("tree/a/b/file"), nil, 0o000))
	b.must(os.MkdirAll(b.real("foreign/a"), 0o755))
	for _, dir := range []string{"tree/a/b/c", "tree/a/b", "tree/a", "tree"} {
		b.must(os.Chmod(b.real(dir), 0o000))
	}
	if os.Getuid() == 0 {
		for _, dir := range []string{"", "tree", "tree/a", "tree/a/b", "tree/a/b/c", "tree/a/b/file"} {
			b.must(os.Chown(b.real(dir), 65534, 65534))
		}
	}
	done := make(chan [2]error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its fsuid
		if os.Getuid() == 0 {
			unix.Setfsuid(65534)
		}
		done <- [2]error{b.rm("tree", true), b.rm("foreign", true)}
	}()
	results := <-done
	b.must(results[0])
	if os.Getuid() == 0 {
		b.want(wire.ErrorCodePermissionDenied, results[1])
	}
}

func TestMkdir(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("file", "x"))
	b.must(os.Symlink("real", b.real("link")))
	b.must(os.Mkdir(b.real("real"), 0o755))
	for _, path := range []string{"a/b/c", "a/b/c", "link", "link/x", "."} {
		entry, err := b.Mkdir(wire.FileMkdir{Path: path})
		b.must(err)
		if entry.Path != path || entry.Kind != wire.FileKindDirectory {
			t.Errorf("%q: %v", path, entry)
		}
	}
	_, err := b.Mkdir(wire.FileMkdir{Path: "file"})
	b.want(wire.ErrorCodeAlreadyExists, err)
	_, err = b.Mkdir(wire.FileMkdir{Path: "file/x"})
	b.want(wire.ErrorCodeNotADirectory, err)
	b.wantContent("file", "x")
	if _, err := os.Stat(filepath.Join(b.real("real"), "x")); err != nil {
		t.Error(err)
	}
}

func TestMove(t *testing.T) {
	b := newBench(t, Limits{})
	move := func(source, destination string, overwrite bool) error {
		entry, err := b.Move(wire.FileMove{Source: source, Destination: destination, Overwrite: overwrite})
		if err == nil && entry.Path != destination {
			t.Errorf("moved to %q", entry.Path)
		}
		return err
	}
	b.must(b.put("a", "a"))
	b.must(b.put("b", "b"))
	b.must(b.put("dir/file", "x"))
	b.must(os.Symlink("../secret", b.real("out")))
	b.want(wire.ErrorCodeAlreadyExists, move("a", "b", false))
	b.want(wire.ErrorCodeNotFound, move("missing", "new/c", false))
	b.want(wire.ErrorCodeIsADirectory, move("a", "dir", true))
	b.want(wire.ErrorCodeNotADirectory, move("dir", "a", true))
	b.want(wire.ErrorCodeNotADirectory, move("a", "b/x", true))
	b.want(wire.ErrorCodeInvalidRequest, move("dir", "dir/sub/dir", true))
	b.want(wire.ErrorCodePathNotAllowed, move(".", "x", true))
	b.want(wire.ErrorCodePathNotAllowed, move("a", ".", true))
	b.wantContent("b", "b")
	b.must(move("a", "b", true))
	b.wantContent("b", "a")
	b.must(move("b", "new/deep/c", false))
	b.wantContent("new/deep/c", "a")
	b.must(move("dir", "new/dir", false))
	b.wantContent("new/dir/file", "x")
	b.want(wire.ErrorCodeDirectoryNotEmpty, move("new/deep", "new/dir", true))
	b.must(move("out", "out2", false)) // the link, which still leads nowhere we go
	b.must(move("new/deep/c", "out2", true))
	b.wantContent("out2", "a")
	b.wantIntact()
}

package files

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const secret = "nobody inside may see this"

// bench is a workspace with a secret file next to it.
type bench struct {
	*Workspace
	t     testing.TB
	outer string
}

func newBench(t testing.TB, limits Limits) *bench {
	t.Helper()
	outer := t.TempDir()
	b := &bench{t: t, outer: outer}
	b.must(os.Mkdir(b.real("."), 0o755))
	b.must(os.WriteFile(filepath.Join(outer, "secret"), []byte(secret), 0o600))
	workspace, err := Open(b.real("."), limits)
	b.must(err)
	t.Cleanup(func() { workspace.Close() })
	b.Workspace = workspace
	return b
}

func (b *bench) real(name string) string { return filepath.Join(b.outer, "workspace", name) }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) want(code wire.ErrorCode, err error) {
	b.t.Helper()
	var failure *wire.Failure
	if !errors.As(err, &failure) || failure.Code != code {
		b.t.Errorf("want %s, got %v", code, err)
	}
}

func (b *bench) put(name, content string) error {
	_, err := b.Write(wire.FileWrite{Path: name, Overwrite: true}, strings.NewReader(content))
	return err
}

func (b *bench) get(name string) (string, error) {
	var sink bytes.Buffer
	_, err := b.Read(wire.FileRead{Path: name}, &sink)
	return sink.String(), err
}

func (b *bench) wantContent(name, content string) {
	b.t.Helper()
	got, err := b.get(name)
	b.must(err)
	if got != content {
		b.t.Errorf("%q holds %q, want %q", name, got, content)
	}
}

func (b *bench) ls(name string, recursive bool) ([]wire.FileEntry, error) {
	var all []wire.FileEntry
	_, err := b.List(wire.FileList{Path: name, Recursive: recursive, MaxEntries: 1 << 20}, func(page []wire.FileEntry) error {
		all = append(all, page...)
		return nil
	})
	return all, err
}

func (b *bench) rm(name string, recursive bool) error {
	return b.Delete(context.Background(), wire.FileDelete{Path: name, Recursive: recursive})
}

// wantIntact fails when anything next to the workspace was touched.
func (b *bench) wantIntact() {
	b.t.Helper()
	names, err := os.ReadDir(b.outer)
	b.must(err)
	if len(names) != 2 {
		b.t.Fatalf("outside the workspace there is now %v", names)
	}
	content, err := os.ReadFile(filepath.Join(b.outer, "secret"))
	if err != nil || string(content) != secret {
		b.t.Fatalf("the file outside is now %q, %v", content, err)
	}
}

// wantNoParts fails when a hidden file was left in the directory.
func (b *bench) wantNoParts(name string) {
	b.t.Helper()
	left, err := filepath.Glob(b.real(filepath.Join(name, ".holdfast-*")))
	b.must(err)
	if len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
}

func TestOpenRefusesWhatIsNoDirectory(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("file", ""))
	for _, path := range []string{b.real("file"), b.real("missing"), "relative"} {
		if _, err := Open(path, Limits{}); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

func TestSpaceIsThatOfTheFileSystem(t *testing.T) {
	b := newBench(t, Limits{})
	total, free, freeFiles, err := b.Space()
	b.must(err)
	var stat unix.Statfs_t
	b.must(unix.Statfs(b.real("."), &stat))
	if total != int64(stat.Blocks)*stat.Bsize || free <= 0 || free > total || freeFiles < 0 {
		t.Errorf("total %d, free %d, files %d", total, free, freeFiles)
	}
}

func TestTooManyFiles(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("old", "1"))
	b.limits.Files = 1 // the file system has more than that already
	b.want(wire.ErrorCodeTooManyFiles, b.put("new", ""))
	b.want(wire.ErrorCodeTooManyFiles, b.put("dir/new", ""))
	_, err := b.Mkdir(wire.FileMkdir{Path: "dir"})
	b.want(wire.ErrorCodeTooManyFiles, err)
	b.must(b.put("old", "2")) // makes no file more
	b.limits.Files = 1 << 60
	b.must(b.put("new", ""))
}

package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/guest/internal/wire"
)

func TestPathsThatAreRefused(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("a/b", ""))
	for path, code := range map[string]wire.ErrorCode{
		"":                              wire.ErrorCodeInvalidRequest,
		"a\x00b":                        wire.ErrorCodeInvalidRequest,
		"a\x002f..":                     wire.ErrorCodeInvalidRequest, // a slash smuggled in as a raw byte
		"..":                            wire.ErrorCodePathNotAllowed,
		"../x":                          wire.ErrorCodePathNotAllowed,
		"a/../../x":                     wire.ErrorCodePathNotAllowed,
		"/etc/passwd":                   wire.ErrorCodePathNotAllowed,
		"/proc/self/environ":            wire.ErrorCodePathNotAllowed,
		"//etc/passwd":                  wire.ErrorCodePathNotAllowed,
		b.path + "2":                    wire.ErrorCodePathNotAllowed,
		b.path + "/../secret":           wire.ErrorCodePathNotAllowed,
		strings.Repeat("n", 256):        wire.ErrorCodeNameTooLong,
		strings.Repeat("x/", 2500) + "": wire.ErrorCodeNameTooLong,
	} {
		_, err := b.get(path)
		b.want(code, err)
		b.want(code, b.put(path, ""))
		b.want(code, b.rm(path, true))
		_, err = b.Mkdir(wire.FileMkdir{Path: path})
		b.want(code, err)
		_, err = b.Move(wire.FileMove{Source: path, Destination: "x"})
		b.want(code, err)
		_, err = b.Move(wire.FileMove{Source: "a", Destination: path})
		b.want(code, err)
		if path != "" { // which is the workspace here
			_, err = b.ls(path, true)
			b.want(code, err)
			_, err = b.Stat(wire.FileStat{Path: path})
			b.want(code, err)
		}
	}
	b.wantIntact()
}

func TestPathsThatStayInside(t *testing.T) {
	b := newBench(t, Limits{})
	for path, name := range map[string]string{
		"a":                              "a",
		"./b//c/":                        "b/c",
		"missing/../d":                   "d",
		"%2e%2e/x":                       "%2e%2e/x",
		"...":                            "...",
		b.path + "/e":                    "e",
		b.path + "//f/../g":              "g",
		strings.Repeat("x/", 299) + "y":  strings.Repeat("x/", 299) + "y",
		strings.Repeat("n", 255):         strings.Repeat("n", 255),
		"back\\slash\n\t'\"*-rf":         "back\\slash\n\t'\"*-rf",
		" blank":                         " blank",
		"\x00ff\x00fe":                   "\xff\xfe",
		"-rf":                            "-rf",
		"mixed-\x00ff-\u00e9-\U0001f600": "mixed-\xff-\u00e9-\U0001f600",
	} {
		b.must(b.put(strings.TrimSuffix(path, "/"), name))
		b.wantContent(path, name)
		if content, err := os.ReadFile(b.real(name)); err != nil || string(content) != name {
			t.Errorf("%q: %q, %v", path, content, err)
		}
		entry, err := b.Stat(wire.FileStat{Path: path})
		b.must(err)
		if entry.Path != wire.ToWire(name) {
			t.Errorf("%q is listed as %q", path, entry.Path)
		}
		b.must(b.rm(entry.Path, false))
	}
	for _, path := range []string{"", ".", b.path, b.path + "/", "a/.."} {
		entry, err := b.Stat(wire.FileStat{Path: path})
		b.must(err)
		if entry.Path != "." || entry.Kind != wire.FileKindDirectory {
			t.Errorf("%q is %v", path, entry)
		}
	}
}

func TestLinks(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("dir/deep/file", "inside"))
	for name, target := range map[string]string{
		"in": "dir/deep/file", "in-chain": "in", "in-dir": "dir/deep", "dir/deep/up": "../../dir/deep/file",
		"out": "../secret", "out-abs": filepath.Join(b.outer, "secret"), "out-dir": "..", "out-root": "/",
		"in-abs": b.real("dir/deep/file"), "magic": "/proc/self/root/etc/passwd", "zero": "/dev/zero",
		"dangling": "missing", "dangling-dir": "missing/dir", "loop": "loop2", "loop2": "loop", "self": "self/x",
	} {
		b.must(os.Symlink(target, b.real(name)))
	}
	for path, code := range map[string]wire.ErrorCode{
		"out": wire.ErrorCodePathNotAllowed, "out-abs": wire.ErrorCodePathNotAllowed,
		"out-dir": wire.ErrorCodePathNotAllowed, "out-dir/secret": wire.ErrorCodePathNotAllowed,
		"out-root/etc/passwd": wire.ErrorCodePathNotAllowed, "in-abs": wire.ErrorCodePathNotAllowed,
		"magic": wire.ErrorCodePathNotAllowed, "zero": wire.ErrorCodePathNotAllowed,
		"dangling": wire.ErrorCodeNotFound, "dangling-dir": wire.ErrorCodeNotFound,
		"loop": wire.ErrorCodeSymlinkLoop, "loop/x": wire.ErrorCodeSymlinkLoop, "self": wire.ErrorCodeSymlinkLoop,
	} {
		_, err := b.get(path)
		b.want(code, err)
		b.want(code, b.put(path, "evil"))
		_, err = b.Stat(wire.FileStat{Path: path})
		b.want(code, err)
		_, err = b.ls(path, true)
		b.want(code, err)
	}
	for _, path := range []string{"out-dir/secret", "out-dir/new", "out-root/tmp/holdfast-evil"} {
		b.want(wire.ErrorCodePathNotAllowed, b.rm(path, true))
		_, err := b.Mkdir(wire.FileMkdir{Path: path})
		b.want(wire.ErrorCodePathNotAllowed, err)
		_, err = b.Move(wire.FileMove{Source: "dir", Destination: path, Overwrite: true})
		b.want(wire.ErrorCodePathNotAllowed, err)
	}
	b.wantIntact()

	for i, path := range []string{"in", "in-chain", "in-dir/file", "in-dir/up", "dir/deep/up"} {
		content := strings.Repeat("new", i)
		b.must(b.put(path, content))
		b.wantContent(path, content)
		b.wantContent("dir/deep/file", content) // the target was replaced, not the link
		if info, err := os.Lstat(b.real("in")); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link became %v, %v", info, err)
		}
		_, err := b.Write(wire.FileWrite{Path: path}, strings.NewReader(""))
		b.want(wire.ErrorCodeAlreadyExists, err)
	}
	if found, err := b.ls("in-dir", false); err != nil || len(found) != 2 || found[0].Path != "in-dir/file" {
		t.Errorf("%v, %v", found, err)
	}
}

// FuzzPath: whatever path is given to whatever request, nothing outside is read, listed or changed.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"a", "../secret", "out/secret", "abs/secret", "in/../../secret", "in/x/out/..",
		"hop/secret", "/", "//", "", ".", "a\x00ff", "loop/x", "out/./../secret", "file/x", "/workspace/../secret"} {
		for op := range byte(7) {
			f.Add(op, path, "a")
			f.Add(op, "a", path)
		}
	}
	b := newBench(f, Limits{FileBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, op byte, path, other string) {
		b.t = t
		b.must(os.RemoveAll(b.real(".")))
		b.must(os.MkdirAll(b.real("in/x"), 0o755))
		b.must(os.WriteFile(b.real("file"), nil, 0o644))
		for name, target := range map[string]string{"out": "..", "abs": b.outer, "hop": "in/up", "in/up": "../out", "loop": "loop"} {
			b.must(os.Symlink(target, b.real(name)))
		}
		workspace, err := Open(b.real("."), b.limits)
		b.must(err)
		defer workspace.Close()
		b.Workspace = workspace
		switch op % 7 {
		case 0:
			_ = b.put(path, "new")
		case 1:
			if content, _ := b.get(path); strings.Contains(content, secret) {
				t.Fatalf("%q was read", path)
			}
		case 2:
			entries, _ := b.ls(path, true)
			for _, entry := range entries {
				if filepath.Base(entry.Path) == "secret" {
					t.Fatalf("%q lists %q", path, entry.Path)
				}
			}
		case 3:
			_ = b.rm(path, true)
		case 4:
			_, _ = b.Mkdir(wire.FileMkdir{Path: path})
		case 5:
			_, _ = b.Move(wire.FileMove{Source: path, Destination: other, Overwrite: true})
		case 6:
			if entry, err := b.Stat(wire.FileStat{Path: path}); err == nil && entry.SizeBytes == int64(len(secret)) && entry.Kind == wire.FileKindFile {
				t.Fatalf("%q is %v", path, entry)
			}
		}
		b.wantIntact()
	})
}

package files

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

func ptr[T any](value T) *T { return &value }

func TestWriteIsAllOrNothing(t *testing.T) {
	b := newBench(t, Limits{FileBytes: 1 << 20})
	b.must(b.put("d/file", "old"))
	cut := errors.New("connection cut")
	half := io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), iotest.ErrReader(cut))
	if _, err := b.Write(wire.FileWrite{Path: "d/file", Overwrite: true}, half); err != cut {
		t.Errorf("the body's error became %v", err)
	}
	_, err := b.Write(wire.FileWrite{Path: "d/new"}, iotest.ErrReader(cut))
	if err != cut {
		t.Error(err)
	}
	b.want(wire.ErrorCodeFileTooLarge, b.put("d/file", strings.Repeat("x", 1<<20+1)))
	b.wantContent("d/file", "old")
	if entries, err := b.ls("d", true); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	b.must(b.put("d/file", strings.Repeat("x", 1<<20)))
	b.wantNoParts("d")
}

func TestWriteStopsAtTheLimitAndNotAtTheEnd(t *testing.T) {
	b := newBench(t, Limits{FileBytes: 1 << 20})
	_, err := b.Write(wire.FileWrite{Path: "endless"}, endless{})
	b.want(wire.ErrorCodeFileTooLarge, err)
	b.wantNoParts(".")
}

type endless struct{}

func (endless) Read(buffer []byte) (int, error) { return len(buffer), nil }

func TestWriteOntoWhatIsNoFile(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("dir/file", "x"))
	b.must(unix.Mkfifo(b.real("fifo"), 0o644))
	b.want(wire.ErrorCodeIsADirectory, b.put("dir", "x"))
	b.want(wire.ErrorCodeIsADirectory, b.put(".", "x"))
	b.want(wire.ErrorCodeIsADirectory, b.put("new/", "x"))
	b.want(wire.ErrorCodeNotADirectory, b.put("dir/file/x", "x"))
	b.want(wire.ErrorCodeNotADirectory, b.put("dir/file/x/y", "x"))
	b.want(wire.ErrorCodeNotRegularFile, b.put("fifo", "x"))
	_, err := b.Write(wire.FileWrite{Path: "dir/file"}, strings.NewReader("new"))
	b.want(wire.ErrorCodeAlreadyExists, err)
	b.wantContent("dir/file", "x")
	_, err = b.Write(wire.FileWrite{Path: "dir/other"}, strings.NewReader("new"))
	b.must(err)
}

func TestNoReplaceHoldsWhenTheFileComesDuringTheBody(t *testing.T) {
	b := newBench(t, Limits{})
	late := readerFunc(func([]byte) (int, error) {
		b.must(os.WriteFile(b.real("x"), []byte("theirs"), 0o644))
		return 0, io.EOF
	})
	_, err := b.Write(wire.FileWrite{Path: "x"}, late)
	b.want(wire.ErrorCodeAlreadyExists, err)
	b.wantContent("x", "theirs")
	b.wantNoParts(".")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(buffer []byte) (int, error) { return f(buffer) }

func TestModes(t *testing.T) {
	b := newBench(t, Limits{})
	defer unix.Umask(unix.Umask(0o077)) // which has no say
	write := func(mode *int64) (wire.FileEntry, error) {
		return b.Write(wire.FileWrite{Path: "f", Mode: mode, Overwrite: true}, strings.NewReader("x"))
	}
	for _, step := range []struct {
		mode *int64
		want int64
	}{{nil, 0o644}, {ptr[int64](0o4755), 0o755}, {nil, 0o755}, {ptr[int64](0), 0}, {ptr[int64](0o420), 0o420}} {
		entry, err := write(step.mode)
		b.must(err)
		info, err := os.Stat(b.real("f"))
		b.must(err)
		if entry.Mode != step.want || int64(info.Mode().Perm()) != step.want || info.Mode()&os.ModeSetuid != 0 {
			t.Errorf("entry %o, file %v, want %o", entry.Mode, info.Mode(), step.want)
		}
	}
	for _, mode := range []int64{-1, 0o10000} {
		_, err := write(&mode)
		b.want(wire.ErrorCodeInvalidRequest, err)
	}
}

func TestReadPieces(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("f", "0123456789"))
	for _, step := range []struct {
		offset    int64
		maxBytes  *int64
		want      string
		truncated bool
	}{
		{0, nil, "0123456789", false}, {4, nil, "456789", false}, {0, ptr[int64](4), "0123", true},
		{6, ptr[int64](4), "6789", false}, {10, nil, "", false}, {1 << 62, nil, "", false}, {0, ptr[int64](0), "", true},
	} {
		var sink bytes.Buffer
		sent, err := b.Read(wire.FileRead{Path: "f", Offset: step.offset, MaxBytes: step.maxBytes}, &sink)
		b.must(err)
		if sink.String() != step.want || sent.Truncated != step.truncated || sent.SentBytes != int64(sink.Len()) || sent.Entry.SizeBytes != 10 {
			t.Errorf("%+v: %q, %+v", step, sink.String(), sent)
		}
	}
	_, err := b.Read(wire.FileRead{Path: "f", Offset: -1}, io.Discard)
	b.want(wire.ErrorCodeInvalidRequest, err)
	_, err = b.Read(wire.FileRead{Path: "f", MaxBytes: ptr[int64](-1)}, io.Discard)
	b.want(wire.ErrorCodeInvalidRequest, err)
	stuck := errors.New("sink is gone")
	if _, err := b.Read(wire.FileRead{Path: "f"}, writerFunc(func([]byte) error { return stuck })); err != stuck {
		t.Errorf("the sink's error became %v", err)
	}
}

type writerFunc func([]byte) error

func (f writerFunc) Write(data []byte) (int, error) { return len(data), f(data) }

func TestReadOnlyRegularFiles(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(unix.Mkfifo(b.real("fifo"), 0o644))
	t.Chdir(b.real(".")) // a socket's path may only be 108 bytes long
	listener, err := net.Listen("unix", "socket")
	b.must(err)
	defer listener.Close()
	for _, name := range []string{"fifo", "socket"} {
		_, err := b.get(name)
		b.want(wire.ErrorCodeNotRegularFile, err)
		entry, err := b.Stat(wire.FileStat{Path: name})
		b.must(err)
		if entry.Kind != wire.FileKindOther {
			t.Error(entry)
		}
	}
	_, err = b.get(".")
	b.want(wire.ErrorCodeIsADirectory, err)
	_, err = b.get("missing")
	b.want(wire.ErrorCodeNotFound, err)
}

func TestReadOfALargeAndOfAGrowingFile(t *testing.T) {
	b := newBench(t, Limits{})
	b.must(b.put("sparse", ""))
	b.must(os.Truncate(b.real("sparse"), 2<<30))
	sent, err := b.Read(wire.FileRead{Path: "sparse", MaxBytes: ptr[int64](256 << 10)}, io.Discard)
	b.must(err)
	if sent.SentBytes != 256<<10 || !sent.Truncated || sent.Entry.SizeBytes != 2<<30 {
		t.Errorf("%+v", sent)
	}

	start := strings.Repeat("x", 3*wire.MaxDataBytes+1)
	b.must(b.put("log", start))
	grow := writerFunc(func(data []byte) error { // each piece sent makes the file longer than that piece
		file, err := os.OpenFile(b.real("log"), os.O_APPEND|os.O_WRONLY, 0)
		b.must(err)
		defer file.Close()
		_, err = file.Write(append(data, data...))
		return err
	})
	sent, err = b.Read(wire.FileRead{Path: "log"}, grow)
	b.must(err)
	if sent.SentBytes != int64(len(start)) || !sent.Truncated || sent.Entry.SizeBytes != 3*int64(len(start)) {
		t.Errorf("%+v", sent)
	}

	shrink := writerFunc(func([]byte) error { return os.Truncate(b.real("log"), 10) })
	sent, err = b.Read(wire.FileRead{Path: "log"}, shrink)
	b.must(err)
	if sent.SentBytes != wire.MaxDataBytes || sent.Truncated || sent.Entry.SizeBytes != 10 {
		t.Errorf("%+v", sent)
	}
}

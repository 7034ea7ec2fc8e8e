package files
import ("testing";"fmt";"os";"runtime";"time";"io";"bytes";"holdfast/guest/internal/wire")
func TestTmp(t *testing.T){
	b := newBench(t, Limits{})
	os.Mkdir(b.real("many"),0o755)
	for i := range 100000 { os.WriteFile(b.real(fmt.Sprintf("many/%d",i)), nil, 0o644) }
	runtime.GC(); var m runtime.MemStats; runtime.ReadMemStats(&m); base := m.HeapAlloc; peak := uint64(0)
	s := time.Now()
	l, err := b.List(wire.FileList{Recursive:true, MaxEntries: 1<<30}, func(p []wire.FileEntry) error { runtime.GC(); runtime.ReadMemStats(&m); peak = max(peak, m.HeapAlloc); return nil })
	t.Log(l, err, time.Since(s), "heap +", int64(peak)-int64(base))
	s = time.Now(); t.Log(b.rm("many", true), time.Since(s))
	deepChain(b, "deep", 10000); s = time.Now(); t.Log(b.rm("deep", true), time.Since(s))
	data := bytes.Repeat([]byte("x"), 1<<20)
	s = time.Now(); for range 100 { b.Write(wire.FileWrite{Path:"f",Overwrite:true}, bytes.NewReader(data)) }; t.Log("1MB write", time.Since(s)/100)
	s = time.Now(); for range 100 { b.Read(wire.FileRead{Path:"f"}, io.Discard) }; t.Log("1MB read", time.Since(s)/100)
}

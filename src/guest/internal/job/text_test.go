package job

import (
	"testing"

	"holdfast/guest/internal/wire"
)

// What Python's decode("utf-8", "replace") makes of it: tests/integration compares with the real one.
func TestBytesThatAreNoTextAreReplacedAsPythonDoes(t *testing.T) {
	for given, want := range map[string]string{
		"plain ä":                   "plain ä",
		"\xff":                      "\uFFFD",
		"\xe2\x82":                  "\uFFFD",             // the beginning of a character, at the end
		"\xe2\x82a":                 "\uFFFDa",            // … and before another
		"\xf0\x9f\x92 ":             "\uFFFD ",            // three of four bytes
		"\xf0\x80\x80":              "\uFFFD\uFFFD\uFFFD", // no beginning of anything
		"\xed\xa0\x80":              "\uFFFD\uFFFD\uFFFD", // half of a surrogate pair
		"\xc0\xaf\x80":              "\uFFFD\uFFFD\uFFFD",
		"a\xe2\x28\xa1\uFFFDb\x00c": "a\uFFFD(\uFFFD\uFFFDb\x00c",
	} {
		if found, lossy := decode([]byte(given)); found != want || lossy != (given != "plain ä") {
			t.Errorf("%q: %q, %v", given, found, lossy)
		}
	}
}

func TestTheCutDropsACharacterAndNotItsNeighbours(t *testing.T) {
	kept := []byte("ab€\xe2\x82" + "\x82\xacx€y")
	found, lossy := text(kept, wire.StreamCount{TotalBytes: 100, HeadBytes: 7, TailBytes: int64(len(kept) - 7)})
	if found != "ab€x€y" || lossy {
		t.Errorf("%q, %v", found, lossy)
	}
	whole, lossy := text([]byte("ab€"), wire.StreamCount{TotalBytes: 5, HeadBytes: 5})
	if whole != "ab€" || lossy {
		t.Errorf("%q, %v", whole, lossy)
	}
}

func TestNamesAreReadable(t *testing.T) {
	if found := readable("a\xff\uFFFDä"); found != "a\\xff\uFFFDä" {
		t.Errorf("%q", found)
	}
	if found := printable("a\x1b[2J b"); found != `a\x1b[2J b` {
		t.Errorf("%q", found)
	}
}

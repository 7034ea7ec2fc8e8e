package files

import (
	"testing"

	"holdfast/guest/internal/wire"
)

func TestPatterns(t *testing.T) {
	for _, one := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.txt", []string{"a.txt", ".txt"}, []string{"a.csv", "out/a.txt", "a.txt.gz"}},
		{"**/*.txt", []string{"a.txt", "out/a.txt", "out/deep/a.txt"}, []string{"a.csv"}},
		{"out", []string{"out", "out/a", "out/deep/a"}, []string{"outer", "an/out"}},
		{"./out/", []string{"out/a"}, []string{"a"}},
		{"out/**", []string{"out/a", "out/deep/a"}, []string{"out2/a"}},
		{"?", []string{"a", "ü", "\xff"}, []string{"ab", "/"}},
		{"a.b+(c)[d]", []string{"a.b+(c)[d]"}, []string{"axb+(c)[d]"}},
		{"new\nline*", []string{"new\nline\n"}, []string{"new"}},
	} {
		patterns, err := Compile([]string{one.pattern})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range one.yes {
			if !patterns.match(wire.ToWire(name)) {
				t.Errorf("%q does not match %q", one.pattern, name)
			}
		}
		for _, name := range one.no {
			if patterns.match(wire.ToWire(name)) {
				t.Errorf("%q matches %q", one.pattern, name)
			}
		}
	}
}

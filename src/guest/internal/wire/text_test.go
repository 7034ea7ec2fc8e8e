package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextThatIsNoText(t *testing.T) {
	for wire, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"ü😀":                "ü😀",
		"\x00ff":            "\xff",
		"a\x00c3\x00b6":     "aö", // what Python sends is text where it can be; this is odd, and still the same bytes
		"x\x00fe\x00ffy":    "x\xfe\xffy",
		"\n\t\"\\\u2028<&>": "\n\t\"\\\u2028<&>",
	} {
		if got, err := FromWire(wire); err != nil || got != want {
			t.Errorf("%q gives %q, %v", wire, got, err)
		}
	}
	for _, wire := range []string{"\x00", "\x00f", "\x00zz", "a\x00b", "\x0041", "\x00FF\x00", "\x00\x00\x00", "\x007f"} {
		if got, err := FromWire(wire); err == nil {
			t.Errorf("%q was taken, as %q", wire, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("plain")
	f.Add("\xff\xfe")
	f.Add("ü\xc3(\x80")
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.ReplaceAll(name, "\x00", "")
		wire := ToWire(name)
		if !utf8.ValidString(wire) {
			t.Fatalf("%q goes out as %q, which is no text", name, wire)
		}
		raw, err := json.Marshal(wire)
		if err != nil {
			t.Fatal(err)
		}
		var arrived string
		if err := json.Unmarshal(raw, &arrived); err != nil {
			t.Fatal(err)
		}
		if back, err := FromWire(arrived); err != nil || back != name {
			t.Fatalf("%q came back as %q, %v", name, back, err)
		}
	})
}

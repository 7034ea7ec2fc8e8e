package job

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/guest/internal/wire"
)

// text is what was kept of a stream as results.py has it: bytes that are no text are replaced, and lossy says so. A
// character that the cut went through is dropped, and does not spoil its neighbours.
func text(kept []byte, count wire.StreamCount) (_ string, lossy bool) {
	if !truncated(count) {
		return decode(kept)
	}
	head, tail := kept[:count.HeadBytes], kept[count.HeadBytes:]
	for cut := 1; cut < utf8.UTFMax && cut <= len(head); cut++ {
		if end := head[len(head)-cut:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				head = head[:len(head)-cut]
			}
			break
		}
	}
	for cut := range min(utf8.UTFMax, len(tail)) {
		if utf8.RuneStart(tail[cut]) {
			tail = tail[cut:]
			break
		}
	}
	first, oneLossy := decode(head)
	last, otherLossy := decode(tail)
	return first + last, oneLossy || otherLossy
}

func truncated(count wire.StreamCount) bool {
	return count.HeadBytes+count.TailBytes < count.TotalBytes
}

// decode replaces as Python does: one U+FFFD for the longest beginning of a character, not one for each byte.
func decode(data []byte) (string, bool) {
	if utf8.Valid(data) {
		return string(data), false
	}
	var out bytes.Buffer
	for len(data) > 0 {
		char, size := utf8.DecodeRune(data)
		if char == utf8.RuneError && size == 1 {
			for begun := 2; begun < utf8.UTFMax && begun <= len(data); begun++ {
				if !utf8.FullRune(data[:begun]) {
					size = begun
				}
			}
		}
		out.WriteRune(char)
		data = data[size:]
	}
	return out.String(), true
}

// readable is a file's name in JSON: bytes that are no text are written as \xff.
func readable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var out strings.Builder
	for at, char := range name {
		if char == utf8.RuneError && name[at] != "\uFFFD"[0] {
			fmt.Fprintf(&out, `\x%02x`, name[at])
			continue
		}
		out.WriteRune(char)
	}
	return out.String()
}

// printable has no control characters: what comes from a program must not drive somebody's terminal.
func printable(name string) string {
	var out strings.Builder
	for _, char := range name {
		if unicode.IsPrint(char) {
			out.WriteRune(char)
		} else {
			fmt.Fprintf(&out, `\x%02x`, char)
		}
	}
	return out.String()
}

package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"
)

var errBadText = errors.New("text holds a NUL that is not followed by two hex digits of a byte")

// FromWire turns the text of a message into the bytes it stands for: a byte that is not UTF-8
// travels as NUL and two hex digits, since Linux's names are bytes and JSON's are not.
func FromWire(text string) (string, error) {
	if strings.IndexByte(text, 0) < 0 {
		return text, nil
	}
	var out strings.Builder
	for at := 0; at < len(text); at++ {
		if text[at] != 0 {
			out.WriteByte(text[at])
			continue
		}
		if at+2 >= len(text) {
			return "", errBadText
		}
		raw, err := hex.DecodeString(text[at+1 : at+3])
		if err != nil || raw[0] < 0x80 {
			return "", errBadText
		}
		out.WriteByte(raw[0])
		at += 2
	}
	return out.String(), nil
}

// ToWire is the reverse of FromWire.
func ToWire(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var out strings.Builder
	for at := 0; at < len(name); {
		char, size := utf8.DecodeRuneInString(name[at:])
		if char == utf8.RuneError && size == 1 {
			out.WriteByte(0)
			out.WriteString(hex.EncodeToString([]byte{name[at]}))
		} else {
			out.WriteString(name[at : at+size])
		}
		at += size
	}
	return out.String()
}

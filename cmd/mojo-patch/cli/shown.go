package cli

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// shown writes text for people. It writes control characters and marks of text direction as in Go strings: in names
// from a file, a terminal would obey them and could hide or fake lines. It keeps line breaks, tabs and this program's
// colors.
type shown struct{ io.Writer }

// Write implements io.Writer.
func (s shown) Write(b []byte) (int, error) {
	if clean := visible(b); len(clean) != len(b) {
		_, err := s.Writer.Write(clean)
		return len(b), err
	}
	return s.Writer.Write(b)
}

var colours = [][]byte{[]byte("\x1b[" + Red + "m"), []byte("\x1b[" + Green + "m"), []byte("\x1b[" + Plain + "m")}

// visible returns b with its control characters escaped, or b itself if it has no control characters.
func visible(b []byte) []byte {
	var clean []byte
	from := 0
next:
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if !controls(r) {
			i += n
			continue
		}
		for _, c := range colours {
			if bytes.HasPrefix(b[i:], c) {
				i += len(c)
				continue next
			}
		}
		text := fmt.Sprintf(`\x%02x`, r)
		if r >= utf8.RuneSelf {
			text = fmt.Sprintf(`\u%04x`, r)
		}
		clean = append(append(clean, b[from:i]...), text...)
		i += n
		from = i
	}
	if from == 0 {
		return b
	}
	return append(clean, b[from:]...)
}

func controls(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

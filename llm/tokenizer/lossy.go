package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// valid replaces invalid UTF-8 in text by U+FFFD, as Rust's String::from_utf8_lossy does.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	s, rest := lossy([]byte(text))
	if rest > 0 {
		s += string(utf8.RuneError)
	}
	return s
}

// lossy returns b as text without rest, the number of bytes of an incomplete character at the end.
func lossy(b []byte) (text string, rest int) {
	if utf8.Valid(b) {
		return string(b), 0
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r != utf8.RuneError || n > 1:
			out.Write(b[:n])
		case !utf8.FullRune(b):
			return out.String(), len(b)
		default:
			n = broken(b)
			out.WriteRune(utf8.RuneError)
		}
		b = b[n:]
	}
	return out.String(), 0
}

// broken returns the number of bytes at the start of b that become one U+FFFD: the longest prefix of a character, or
// one byte that cannot start a character ("maximal subparts" in chapter 3 of the Unicode standard).
func broken(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n]) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

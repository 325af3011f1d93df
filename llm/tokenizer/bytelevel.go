package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteChars is the alphabet of byte-level BPE (GPT-2's bytes_to_unicode): printable bytes of Latin-1 map to themselves,
// the others to U+0100 and up.
var byteChars, charBytes = func() (chars [256]string, bytes map[rune]byte) {
	bytes = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		chars[b], bytes[r] = string(r), byte(b)
	}
	return chars, bytes
}()

// toByteChars writes each byte of text as a character of the alphabet.
func toByteChars(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/4)
	for i := range len(text) {
		b.WriteString(byteChars[text[i]])
	}
	return b.String()
}

// fromByteChars returns the bytes of a token. A token with a character outside the alphabet is returned as its own
// bytes.
func fromByteChars(token string) []byte {
	out := make([]byte, 0, len(token))
	for i := 0; i < len(token); {
		r, n := utf8.DecodeRuneInString(token[i:])
		b, ok := charBytes[r]
		if !ok {
			return []byte(token)
		}
		out = append(out, b)
		i += n
	}
	return out
}

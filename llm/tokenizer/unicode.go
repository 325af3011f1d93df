package tokenizer

import (
	"unicode"

	"github.com/mojo-patch/mojo-patch/llm/tokenizer/internal/onig"
)

// numbers17 are the numbers that Unicode 17.0, the version of Rust's standard library, adds to 16.0.
var numbers17 = &unicode.RangeTable{
	R32: []unicode.Range32{{Lo: 0x11DE0, Hi: 0x11DE9, Stride: 1}, {Lo: 0x16FF4, Hi: 0x16FF6, Stride: 1}}}

// isNumeric is Rust's char::is_numeric: Nd, Nl or No.
func isNumeric(r rune) bool {
	if r < 0x80 {
		return '0' <= r && r <= '9'
	}
	return onig.Is("N", r) || unicode.Is(numbers17, r)
}

// isWord is \w of Rust's regex crate: Alphabetic, M, Nd, Pc and Join_Control (UTS 18, annex C).
func isWord(r rune) bool { return onig.Is("Word", r) || unicode.Is(unicode.Join_Control, r) }

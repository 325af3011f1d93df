package tokenizer

import "unicode"

// isNumeric is char::is_numeric of Rust: Nd, Nl or No.
func isNumeric(r rune) bool { return unicode.Is(unicode.N, r) }

// Package tokenizer converts between text and token ids according to a tokenizer.json of Hugging Face's tokenizers
// library. It supports byte-level BPE and the BPE with byte fallback of SentencePiece models.
//
// Encoding uses the library's steps. Added tokens that match the raw text are cut out, and the rest is normalized.
// Added tokens that match the normalized text are cut out, and the pre-tokenizer splits the rest into words. BPE merges
// the symbols of each word, and the post-processor adds the beginning and end tokens.
//
// [Read] returns an error with name and place for a part of the file that this package does not support, so ids never
// differ from Hugging Face's because a setting was ignored. The sections truncation and padding are ignored: callers
// decide how to cut and pad a batch.
//
// The Unicode versions match release 0.23.3 as well: patterns use Unicode 16.0 as Oniguruma does (package
// internal/onig), normalization 9.0, and digits and lower case 17.0. All code points were compared. Inputs on which
// that release panics return ids here: a token inside white space that the previous token strips is left out, and a
// pattern that backtracks without end leaves a piece whole.
//
// Text that is not UTF-8 is read like Rust's String::from_utf8_lossy: each longest prefix of an incomplete character,
// and each byte that cannot start one, becomes one U+FFFD.
package tokenizer

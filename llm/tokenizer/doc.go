// Package tokenizer turns text into token ids and back as a tokenizer.json of Hugging Face's tokenizers library says:
// byte-level BPE and the BPE with byte fallback of SentencePiece models.
//
// Encoding goes through the same steps as there: added tokens that match the text as it is are cut out, the rest is
// normalized, added tokens that match normalized text are cut out, the pre-tokenizer splits what is left into words,
// BPE merges each word's symbols, and the post-processor puts the beginning and end tokens around the ids.
//
// A part of the file that this package does not know is an error of [Read] which names it and its place; no tokenizer
// returns ids that differ from Hugging Face's because a setting was passed over. The sections truncation and padding
// are not read: they say how a batch is cut and filled, which callers decide.
//
// Equal means tables, too: patterns go by Unicode 16.0 as Oniguruma has it (package internal/onig), normalization by
// 9.0, digits and lower case by 17.0, as in release 0.23.3. All code points were compared. What that release panics at
// returns ids here: a token within the white space that the one before it strips is left out, and a pattern that
// backtracks without end leaves a piece whole.
//
// Text that is not UTF-8 is read as Rust's String::from_utf8_lossy reads it: each longest beginning of a character that
// breaks off, and each byte that begins none, becomes one U+FFFD.
package tokenizer

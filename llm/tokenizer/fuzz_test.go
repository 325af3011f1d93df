package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParse parses an arbitrary file and, if it is a tokenizer, encodes and decodes with it. It must not panic.
//
//	go test -fuzz FuzzParse ./llm/tokenizer
func FuzzParse(f *testing.F) {
	f.Add(small(""), "ab a")
	f.Add(small(`"added_tokens":[{"id":4,"content":" a","lstrip":true,"rstrip":true,"single_word":true,"normalized":true,"special":true}],
		"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"Prepend","prepend":"a"},{"type":"Replace","pattern":{"String":"b"},"content":"a"}]},
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithNext","invert":true},
		{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true}]},
		"post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["b",1]},
		"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`), "A  bÅ\u0301 12")
	f.Add(`{"model":{"vocab":{"?":0,"<0x61>":1},"merges":[],"unk_token":"?","byte_fallback":true,"fuse_unk":true,"ignore_merges":true},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[7]}}}}`, "ab\xff")
	f.Fuzz(func(t *testing.T, file, text string) {
		// package onig fuzzes patterns
		if len(file) > 2000 || len(text) > 200 || strings.Contains(file, `"Regex"`) {
			return
		}
		tok, err := Parse([]byte(file))
		if err != nil {
			return
		}
		ids := tok.Encode(text, true)
		if got, want := streamed(t, tok, ids), tok.Decode(ids, false); got != want {
			t.Errorf("%v: streamed %q, decoded %q", ids, got, want)
		}
	})
}

// FuzzEncode encodes arbitrary text with a tokenizer that has all bytes. Decoding must return the text.
//
//	go test -fuzz FuzzEncode ./llm/tokenizer
func FuzzEncode(f *testing.F) {
	tok := parse(f, string(readZipped(f, "testdata/o200k.json.gz")))
	f.Add("It's 12\t\r\n  <|endoftext|>x é漢👩‍👩‍👧\x00\xff\xe6\xbc")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 5000 {
			return
		}
		got := tok.Decode(tok.Encode(text, true), false)
		if want := valid(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q comes back as %q", want, got)
		}
	})
}

package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is a tokenizer.json with additional parts.
func small(parts string) string {
	if parts != "" {
		parts += ","
	}
	return `{"version":"1.0","truncation":null,"padding":null,` + parts +
		`"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}}`
}

// TestRefused checks that unsupported or invalid parts are errors with name and place.
func TestRefused(t *testing.T) {
	model := func(rest string) string { return `{"model":{"type":"BPE",` + rest + `}}` }
	for file, want := range map[string]string{
		`nothing`:           "not a tokenizer.json",
		`{}`:                "no model",
		`{"version":"2.0"}`: `version is "2.0"`,
		`{"model":{"type":"WordPiece","vocab":{}}}`:                "model: WordPiece is not supported, only BPE",
		`{"model":{"type":"Unigram","vocab":[]}}`:                  "model: Unigram is not supported",
		model(`"merges":[]`):                                       "model: no vocab",
		model(`"vocab":{}`):                                        "model: no merges",
		model(`"vocab":{"a":0,"b":0},"merges":[]`):                 `model.vocab: "a" and "b" have the same id 0`,
		model(`"vocab":{"a":-1},"merges":[]`):                      "model: ",
		model(`"vocab":{"a":0},"merges":["a b"]`):                  `model.merges[0]: "b" is not in vocab`,
		model(`"vocab":{"a":0,"b":1},"merges":[["a","b"]]`):        `model.merges[0]: "ab" is not in vocab`,
		model(`"vocab":{"a":0,"aa":1},"merges":[["a","a"],["a"]]`): "model.merges[1]: 1 tokens",
		model(`"vocab":{"a":0,"aa":1},"merges":["a a","a a a"]`):   "model.merges[1]: 3 tokens",
		model(`"vocab":{},"merges":[],"dropout":0.1`):              "model: dropout 0.1 is not supported",
		model(`"vocab":{},"merges":[],"continuing_subword_prefix":"##"`): `continuing_subword_prefix "##" is not ` +
			`supported`,
		model(`"vocab":{},"merges":[],"end_of_word_suffix":"</w>"`): `end_of_word_suffix "</w>" is not supported`,
		model(`"vocab":{},"merges":[],"unk_token":"?"`):             `unk_token "?" is not in vocab`,
		small(`"pre_tokenizer":{"type":"Metaspace"}`): "pre_tokenizer: Metaspace is not supported, " +
			"only ByteLevel",
		small(`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},` +
			`{"type":"Whitespace"}]}`): "pre_tokenizer.pretokenizers[1]: Whitespace is not",
		small(`"pre_tokenizer":{"type":"Sequence","pretokenizers":[null]}`): "pre_tokenizer.pretokenizers[0]: null",
		small(`"pre_tokenizer":{}`):                                         "pre_tokenizer: no type",
		small(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\X"},` +
			`"behavior":"Isolated"}`): `pre_tokenizer.pattern: pattern "\\X": \X is not supported`,
		small(`"pre_tokenizer":{"type":"Split","pattern":{},"behavior":"Isolated"}`): "pre_tokenizer.pattern: " +
			"neither String nor Regex",
		small(`"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Merged"}`): `behavior "Merged" ` +
			`is not supported, only Contiguous`,
		small(`"normalizer":{"type":"Nmt"}`): "normalizer: Nmt is not supported",
		small(`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},` +
			`{"type":"Precompiled"}]}`): "normalizer.normalizers[1]: Precompiled",
		small(`"post_processor":{"type":"Other"}`): "post_processor: Other is not supported",
		small(`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],` +
			`"special_tokens":{}}`): `single[0]: "<s>" is not among special_tokens`,
		small(`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],` +
			`"special_tokens":{}}`): `single[0]: sequence "B"`,
		small(`"post_processor":{"type":"TemplateProcessing","single":[{}]}`): "single[0]: neither",
		small(`"post_processor":{"type":"RobertaProcessing","cls":["a"],"sep":["a",0]}`): "must each be a token and " +
			"its id",
		small(`"decoder":{"type":"WordPiece"}`): "decoder: WordPiece is not " +
			"supported",
		small(`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"a"},` +
			`"content":""}]}`): "decoders[1]: Replace after Fuse",
		small(`"decoder":{"type":"Strip","content":" ","start":0,"stop":1}`):  "decoder: stop 1 is not supported",
		small(`"decoder":{"type":"Strip","content":"  ","start":1,"stop":0}`): "is not one character",
		small(`"normalizer":{"type":"Lowercase"},"added_tokens":[{"content":"X","normalized":true},{"content":"x",` +
			`"normalized":true}]`): `added_tokens: added tokens "X" and "x" become the same`,
		small(`"added_tokens":7`): "not a tokenizer.json",
	} {
		_, err := Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", file, err, want)
		}
	}
}

// TestReadNamesFile checks that errors of Read begin with the file's path, in a folder too, compressed or not.
func TestReadNamesFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, File)
	for _, c := range []struct{ file, content, want string }{
		{"", "", path + ":"},
		{path + ".gz", "\x1f\x8b\x08", path + ".gz: unexpected EOF"},
		{path, `{"model":{"type":"Unigram"}}`, path + ": model: Unigram"},
	} {
		if c.file != "" {
			if err := os.WriteFile(c.file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Read(folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, expected %q", c.content, err, c.want)
		}
	}
}

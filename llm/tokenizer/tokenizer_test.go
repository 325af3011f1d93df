package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
)

var smolLM2 = sync.OnceValues(func() (*Tokenizer, error) { return Read("../../models/smollm2") })

func readSmolLM2(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := smolLM2()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func parse(t testing.TB, file string) *Tokenizer {
	t.Helper()
	tok, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokens(t *testing.T) {
	tok := readSmolLM2(t)
	id, ok := tok.ID("<|im_end|>")
	if !ok || id != 2 || tok.Size() != 49152 {
		t.Errorf("<|im_end|> is %d, %v, size %d", id, ok, tok.Size())
	}
	if s, ok := tok.Token(2); !ok || s != "<|im_end|>" {
		t.Errorf("2 is %q, %v", s, ok)
	}
	for _, id := range []int64{-1, 49152, 1 << 40} {
		if s, ok := tok.Token(id); ok {
			t.Errorf("%d is %q", id, s)
		}
	}
	if _, ok := tok.ID("no token"); ok {
		t.Error("an id for what is no token")
	}
	if got := tok.Decode([]int64{1, 504, -5, 1 << 50, 2}, true); got != tok.Decode([]int64{504}, false) || got == "" {
		t.Errorf("without special tokens %q", got)
	}
}

// TestAddSpecial checks that the template's tokens appear only on request.
func TestAddSpecial(t *testing.T) {
	tok := parse(t, small(`"added_tokens":[{"id":4,"content":"<s>","special":true},{"id":5,"content":"</s>","special":true}],
		"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
		"single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"</s>"}}],
		"special_tokens":{"<s>":{"ids":[4]},"</s>":{"ids":[5]}}}]}`))
	for add, want := range map[bool][]int64{true: {4, 2, 4, 0, 5}, false: {2, 4, 0}} {
		if got := tok.Encode("ab<s>a", add); !slices.Equal(got, want) {
			t.Errorf("%v: %v, expected %v", add, got, want)
		}
	}
	if got := tok.Size(); got != 6 {
		t.Errorf("size %d", got)
	}
}

// TestInvalidUTF8 checks that invalid bytes are read like Rust's String::from_utf8_lossy.
func TestInvalidUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"a\xffb": "a\uFFFDb", "\xe0\x80": "\uFFFD\uFFFD", "\xf0\x90\x80a": "\uFFFDa", "\xe6\xbc": "\uFFFD",
		"\xed\xa0\x80":     "\uFFFD\uFFFD\uFFFD",
		"\xf4\x90\x80\x80": "\uFFFD\uFFFD\uFFFD\uFFFD", "\xc0\x80": "\uFFFD\uFFFD", "é\xc3": "é\uFFFD",
		"\xf0\x9f\x91\xf0\x9f\x91\x8d": "\uFFFD👍",
	} {
		if got := valid(text); got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
	}
	tok := readSmolLM2(t)
	if got, want := tok.Encode("x\xffy", false), tok.Encode("x\uFFFDy", false); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

// TestStreamHoldsBack checks that a stream never returns part of a character, or U+FFFD before it is certain.
func TestStreamHoldsBack(t *testing.T) {
	tok := readSmolLM2(t)
	bytesOf := func(text string) (ids []int64) {
		for i := range len(text) {
			id, ok := tok.ID(byteChars[text[i]])
			if !ok {
				t.Fatalf("no token for byte %x", text[i])
			}
			ids = append(ids, id)
		}
		return ids
	}
	for _, c := range []struct {
		text string
		want []string // of each Add, then Flush
	}{
		{"é", []string{"", "é", ""}},
		{"a👍", []string{"a", "", "", "", "👍", ""}},
		{"\xf0\x9fa", []string{"", "", "\uFFFDa", ""}},
		{"\xe6\xbc", []string{"", "", "\uFFFD"}},
		{"\xe6\xe6\xbc\xa2", []string{"", "\uFFFD", "", "漢", ""}},
	} {
		s := tok.Stream(false)
		var got []string
		for _, id := range bytesOf(c.text) {
			got = append(got, s.Add(id))
		}
		if got = append(got, s.Flush()); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, expected %q", c.text, got, c.want)
		}
		if again := s.Add(bytesOf("a")[0]); again != "a" {
			t.Errorf("%q: %q behind Flush", c.text, again)
		}
	}
}

// TestLongWords checks that the time for long words and long white space stays near linear.
func TestLongWords(t *testing.T) {
	tok := readSmolLM2(t)
	const n = 100_000
	for _, text := range []string{strings.Repeat("a", n), strings.Repeat(" ", n), strings.Repeat("ab", n/2),
		strings.Repeat("7", n), strings.Repeat("漢", n/3), strings.Repeat("\n", n) + "x"} {
		start := cputime.Used()
		ids := tok.Encode(text, false)
		if took := cputime.Used() - start; took > 20*time.Second {
			t.Errorf("%d bytes of %q took %v", len(text), text[:3], took)
		}
		if got := tok.Decode(ids, false); got != text {
			t.Errorf("%d bytes of %q come back as %d", len(text), text[:3], len(got))
		}
	}
}

// TestConcurrent encodes in several goroutines, to find shared state with go test -race.
func TestConcurrent(t *testing.T) {
	tok := readSmolLM2(t)
	want := tok.Encode("Hello world, it's 12 o'clock.", true)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				tok.Encode(fmt.Sprintf("words%d of %d", g, i), true)
				if got := tok.Encode("Hello world, it's 12 o'clock.", true); !slices.Equal(got, want) {
					t.Errorf("%v, expected %v", got, want)
				}
			}
		})
	}
	all.Wait()
}

// TestAddedTokenIDs checks that the file's ids for tokens outside the vocabulary are replaced as in tokenizers.
func TestAddedTokenIDs(t *testing.T) {
	tok := parse(t, small(`"added_tokens":[{"id":90,"content":"x"},{"id":2,"content":"ab"},{"id":7,"content":""},`+
		`{"id":91,"content":"y"},{"id":91,"content":"x","special":true}]`))
	for token, want := range map[string]int64{"x": 4, "y": 5, "ab": 2} {
		if got, ok := tok.ID(token); !ok || got != want {
			t.Errorf("%s is %d, expected %d", token, got, want)
		}
	}
	if got := tok.Decode([]int64{4, 5}, true); got != "y" {
		t.Errorf("decoded %q", got)
	}
}

// TestSwallowedToken covers a token of white space that the token before it strips. tokenizers (0.23.3) then does not
// return it, and panics at the second text.
func TestSwallowedToken(t *testing.T) {
	tok := parse(t, small(`"added_tokens":[{"id":4,"content":"<x>","rstrip":true},{"id":5,"content":"\n",`+
		`"lstrip":true}]`))
	for text, want := range map[string][]int64{"<x>\n": {4}, "<x> \n a": {4, 0}, "a \n<x>": {0, 5, 4}} {
		if got := tok.Encode(text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
}

package onig

import (
	"strings"
	"testing"
	"time"
)

// TestRefused checks that errors name unsupported or invalid syntax.
func TestRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		`(a)\1`: `\1 is not supported`, `(?<n>a)\k<n>`: `\k is not supported`, `\Ga`: `\G is not supported`,
		`a\Kb`: `\K is not supported`, `\X`: `\X is not supported`,
		`(?x: a)`: `(?x is not supported`, `(?s:.)`: `(?s is not supported`, `(?~a)`: `(?~ is not supported`,
		`(?(1)a)`:   `(?( is not supported`,
		`\p{Emoji}`: `\p{Emoji} is not supported`, `\pL`: `without a name`, `[[:name:]]`: `[:name:] is not supported`,
		`\x80`: `beyond 7F`, `\123`: `\1 is not supported`,
		`(?i:ss)`: `"ss"`, `(?i:ß)`: `'ß'`, `(?i)straße`: `without case`, `(?i:[ß])`: `'ß'`,
		`(?i:\p{Lu})`: `without case`,
		`(`:           `does not end`, `)`: `without a (`, `[`: `without a ]`, `[]`: `no characters`, `*a`: `repeats nothing`,
		`a|+`: `repeats nothing`, `a\`: `backslash`, `[\`: `backslash`,
		`a{9999999}`: `too big`, `a{3,2}`: `wrong order`, `[b-a]`: `range`, `[a-\d]`: `range`,
		`[a-[b]]`: `not supported`, `(?<>a)`: `without a name`, `(?#`: `does not end`,
		`\x{110000}`: `hexadecimal`, `\u12`: `hexadecimal`, `\x{41`: `without a }`,
		strings.Repeat("(", 1000): "too deeply", strings.Repeat("[", 1000): "too deeply",
	} {
		_, err := Compile(pattern, time.Minute)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", pattern, err, want)
		}
	}
}

// TestTimeout checks that an endlessly backtracking search is abandoned, and that matches before it count.
func TestTimeout(t *testing.T) {
	re, err := Compile(`b|(?:a+)+c`, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := split(re, "bb"+strings.Repeat("a", 200))
	if len(got) != 3 || got[0] != "b" || got[1] != "b" {
		t.Errorf("pieces %q", got)
	}
}

// FuzzCompile compiles arbitrary patterns and splits arbitrary text. It must not panic or lose text.
//
//	go test -fuzz FuzzCompile ./llm/tokenizer/internal/onig
func FuzzCompile(f *testing.F) {
	for _, pattern := range []string{`(?i:'s|'t)|[^\r\n\p{L}]?+\p{L}++|\s+(?!\S)|[a-c&&[^b]]{1,3}`,
		`^a$|\b\R|(?<=x)(?>y)`, `[[:^alpha:]-]+?|\x{41}|(?m-i:.)`} {
		f.Add(pattern, "It's a  test\r\n 123 é漢\xff")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 100 || len(text) > 100 {
			return
		}
		re, err := Compile(pattern, 20*time.Millisecond)
		if err != nil {
			return
		}
		text = strings.ToValidUTF8(text, "\uFFFD")
		if got := strings.Join(split(re, text), ""); got != text {
			t.Errorf("%q split by %q gives %q", text, pattern, got)
		}
	})
}

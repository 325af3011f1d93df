package onig

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSplits compares the splits of texts at a pattern's matches with those of Hugging Face's tokenizers:
// testdata/record.py.
func TestSplits(t *testing.T) {
	var recorded struct {
		Texts  []string
		Splits map[string]string
	}
	readRecorded(t, "testdata/splits.json", &recorded)
	if len(recorded.Splits) < 80 {
		t.Fatalf("%d patterns", len(recorded.Splits))
	}
	for pattern, want := range recorded.Splits {
		re, err := Compile(pattern, time.Minute)
		if err != nil {
			t.Error(err)
			continue
		}
		var all []string
		for _, text := range recorded.Texts {
			all = append(all, strings.Join(split(re, text), "\x1e"))
		}
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\x1f"))))[:16]; got != want {
			t.Errorf("%s: other pieces than Oniguruma's: %q", pattern, all)
		}
	}
}

// split returns the matches and the text between them, without empty pieces.
func split(re *Regexp, text string) []string {
	out := []string{}
	done := 0
	add := func(piece string) {
		if piece != "" {
			out = append(out, piece)
		}
	}
	re.Each(text, func(start, end int) {
		add(text[done:start])
		add(text[start:end])
		done = end
	})
	add(text[done:])
	return out
}

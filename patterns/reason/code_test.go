package reason

import (
	"regexp"
	"testing"
)

// TestHintsInPlainEnglish rejects words that a reader who knows ONNX has to read twice.
func TestHintsInPlainEnglish(t *testing.T) {
	odd := regexp.MustCompile(`\b(is no|are no|stands?|alone|in place of|none the less|of its own|those of|that of|` +
		`\w+(is|ys)(ed?|es|ing|ation)|colour|behaviour)\b`)
	plain := regexp.MustCompile(`\b(raised|based|used|closed|advised|[Oo]therwise|this|analysis|exercise|noise)\b`)
	for code, hint := range hints {
		if word := odd.FindString(plain.ReplaceAllString(hint, "")); word != "" {
			t.Errorf("hint of %s has %q: %s", code, word, hint)
		}
	}
}

package onig

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestClasses compares the characters of classes with those of Hugging Face's tokenizers: testdata/record.py.
func TestClasses(t *testing.T) {
	var want map[string]string
	readRecorded(t, "testdata/classes.json", &want)
	if len(want) < 80 {
		t.Fatalf("%d classes", len(want))
	}
	for pattern, digest := range want {
		n, err := parse(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		if g, ok := n.(group); ok {
			n = g.body
		}
		var spans []string
		for _, p := range intersection(n.(char).set, set{{1, 0xD7FF}, {0xE000, 0x10FFFF}}) {
			spans = append(spans, fmt.Sprintf("%x-%x", p.lo, p.hi))
		}
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(spans, ";"))))[:16]; got != digest {
			t.Errorf("%s: other characters than Oniguruma's", pattern)
		}
	}
}

// readRecorded reads a file that testdata/record.py wrote.
func readRecorded(t *testing.T, path string, recorded any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, recorded); err != nil {
		t.Fatal(err)
	}
}

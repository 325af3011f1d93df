package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// recordedLine is a text with the results of Hugging Face's tokenizers: testdata/record.py.
type recordedLine struct {
	text, decoded string
	ids           []int64
}

func (l *recordedLine) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if err := json.Unmarshal(parts[0], &l.text); err != nil {
		return err
	}
	l.decoded = l.text
	if len(parts) > 2 {
		if err := json.Unmarshal(parts[2], &l.decoded); err != nil {
			return err
		}
	}
	return json.Unmarshal(parts[1], &l.ids)
}

func readZipped(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = unzip(data); err != nil {
		t.Fatal(err)
	}
	return data
}

func readLines(t testing.TB, path string) []recordedLine {
	t.Helper()
	var lines []recordedLine
	for d := json.NewDecoder(bytes.NewReader(readZipped(t, path))); d.More(); {
		var l recordedLine
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// streamed joins the pieces of a stream and checks that each is UTF-8.
func streamed(t *testing.T, tok *Tokenizer, ids []int64) string {
	t.Helper()
	s := tok.Stream(false)
	var b strings.Builder
	for _, id := range ids {
		piece := s.Add(id)
		if !utf8.ValidString(piece) {
			t.Errorf("%v: piece %q", ids, piece)
		}
		b.WriteString(piece)
	}
	b.WriteString(s.Flush())
	return b.String()
}

// checkLines compares every line in both directions, and the stream's pieces.
func checkLines(t *testing.T, tok *Tokenizer, lines []recordedLine) {
	t.Helper()
	for _, l := range lines {
		if ids := tok.Encode(l.text, true); !slices.Equal(ids, l.ids) {
			t.Errorf("%q: ids %v, Hugging Face's %v", l.text, ids, l.ids)
		}
		if got := tok.Decode(l.ids, false); got != l.decoded {
			t.Errorf("%v: text %q, Hugging Face's %q", l.ids, got, l.decoded)
		}
		if got := streamed(t, tok, l.ids); got != l.decoded {
			t.Errorf("%v: streamed %q, Hugging Face's %q", l.ids, got, l.decoded)
		}
	}
}

// TestSmolLM2 compares 700 lines with Hugging Face's tokenizers.
func TestSmolLM2(t *testing.T) {
	lines := readLines(t, "testdata/smollm2.jsonl.gz")
	if len(lines) < 700 {
		t.Fatalf("%d lines", len(lines))
	}
	checkLines(t, readSmolLM2(t), lines)
}

// TestStyles compares lines in small tokenizers made like those of known models: testdata/styles.py.
func TestStyles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json.gz")
	if err != nil || len(files) < 10 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json.gz")
		t.Run(name, func(t *testing.T) {
			tok, err := Parse(readZipped(t, path))
			if err != nil {
				t.Fatal(err)
			}
			lines := readLines(t, "testdata/"+name+".jsonl.gz")
			if len(lines) < 60 {
				t.Fatalf("%d lines", len(lines))
			}
			checkLines(t, tok, lines)
		})
	}
}

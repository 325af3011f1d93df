package chat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRender parses any text as a template and renders conversations by it: no panic, no endless loop, no text for
// nothing. Work and text are bounded by maxSteps and maxText, here by less.
func FuzzRender(f *testing.F) {
	paths, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(paths) == 0 {
		f.Fatal(paths, err)
	}
	for _, path := range append(paths, "testdata/expressions.txt") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if strings.HasSuffix(path, ".txt") {
			for line := range strings.Lines(string(data)) {
				f.Add(line)
			}
			continue
		}
		f.Add(string(data))
	}
	r := readRecorded(f)
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := parse(source, 2_000_000)
		if err != nil {
			return
		}
		for _, name := range []string{"turns", "call", "parts"} {
			messages, opts := r.conversation(t, name)
			got, err := tmpl.Render(messages, opts)
			if err == nil && strings.TrimSpace(got) == "" {
				t.Fatalf("%q: no text, and no error", source)
			}
			if err != nil && got != "" {
				t.Fatalf("%q: text %q with the error %v", source, got, err)
			}
		}
	})
}

// FuzzMessage decodes any JSON as a message and renders it.
func FuzzMessage(f *testing.F) {
	f.Add(`{"role":"user","content":"hi"}`)
	f.Add(`{"role":"assistant","content":[{"type":"text","text":"é"}],"tool_calls":[{"function":{"name":"f",` +
		`"arguments":{"a":1e5}}}]}`)
	tmpl, err := Parse(`{% for m in messages %}{{ m.role }}{{ m.content }}{{ m|tojson(indent=1) }}{{ m }}{% endfor %}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		var m Message
		if m.UnmarshalJSON([]byte(source)) != nil {
			return
		}
		if _, err := tmpl.Render([]Message{m}, Options{}); err != nil {
			t.Fatalf("%q: %v", source, err)
		}
	})
}

package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRender parses arbitrary text as a template and renders conversations by it. It must not panic or loop forever.
// The bounds on work and text are lower here.
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
	maxWork = 2_000_000
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
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

// FuzzMessage decodes arbitrary JSON as a message and renders it.
func FuzzMessage(f *testing.F) {
	f.Add(`{"role":"user","content":"hi"}`)
	f.Add(`{"role":"assistant","content":[{"type":"text","text":"é"}],"tool_calls":[{"function":{"name":"f",` +
		`"arguments":{"a":1e5}}}]}`)
	tmpl, err := Parse(`{% for m in messages %}{{ m.role }}{{ m.content }}{{ m|tojson(indent=1) }}{{ m }}{% endfor %}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		_, err := tmpl.Render([]Message{{Fields: json.RawMessage(source)}}, Options{})
		refused := err != nil && strings.Contains(err.Error(), "message 0: ")
		if err != nil && !refused && !strings.Contains(err.Error(), "not supported") {
			t.Fatalf("%q: %v", source, err)
		}
	})
}

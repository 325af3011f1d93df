package chat

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// recorded is the recorded output of transformers: testdata/record.py.
type recorded struct {
	Tokens        map[string]string
	Conversations map[string]struct {
		Messages []json.RawMessage
		Options  map[string]json.RawMessage
	}
	Context     map[string]json.RawMessage // keeps the order of keys
	Expressions []rendered                 // of the lines of expressions.txt
	Templates   map[string]map[string]rendered
}

type rendered struct {
	Text  *string
	Error string
}

// recordedTime is the time of the recording.
var recordedTime = time.Date(2026, 3, 7, 9, 5, 4, 0, time.UTC)

func readRecorded(t testing.TB) recorded {
	t.Helper()
	file, err := os.Open("testdata/recorded.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// conversation returns the messages and options of one recorded conversation.
func (r recorded) conversation(t testing.TB, name string) ([]Message, Options) {
	t.Helper()
	c := r.Conversations[name]
	opts := Options{Now: recordedTime, Variables: map[string]any{}}
	for key, v := range c.Options {
		switch key {
		case "add_generation_prompt":
			opts.AddGenerationPrompt = string(v) == "true"
		case "continue_final_message":
			opts.ContinueFinalMessage = string(v) == "true"
		case "tools":
			opts.Tools = v
		default:
			opts.Variables[key] = v
		}
	}
	messages := make([]Message, len(c.Messages))
	for i, m := range c.Messages {
		messages[i].Fields = m
	}
	return messages, opts
}

// check compares our result with the recorded one: the same text to the byte, or an error for an error.
func (want rendered) check(t *testing.T, what, got string, err error) {
	t.Helper()
	switch {
	case want.Text == nil && err == nil:
		t.Errorf("%s: rendered %q, in jinja2 it is %s", what, got, want.Error)
	case want.Text != nil && err != nil:
		t.Errorf("%s: %v; in jinja2 it is %q", what, err, *want.Text)
	case want.Text != nil && got != *want.Text:
		t.Errorf("%s:\nrendered  %q\nin jinja2 %q", what, got, *want.Text)
	}
}

// Every conversation becomes transformers' prompt, or an error if transformers fails.
func TestTemplatesAsTransformers(t *testing.T) {
	r := readRecorded(t)
	if len(r.Templates) < 11 || len(r.Conversations) < 18 {
		t.Fatalf("%d templates, %d conversations", len(r.Templates), len(r.Conversations))
	}
	for path, outputs := range r.Templates {
		tmpl, err := Read(filepath.Join("testdata", path))
		if err != nil {
			t.Error(err)
			continue
		}
		tmpl.Tokens = r.Tokens
		for name, want := range outputs {
			messages, opts := r.conversation(t, name)
			got, err := tmpl.Render(messages, opts)
			want.check(t, path+", "+name, got, err)
		}
	}
}

var tags = regexp.MustCompile(`{{.*?}}|{%.*?%}|{#.*?#}`)

// outside decodes \n, \r and \t outside tags, like record.py.
func outside(source string) string {
	characters := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t")
	var b strings.Builder
	from := 0
	for _, at := range tags.FindAllStringIndex(source, -1) {
		b.WriteString(characters.Replace(source[from:at[0]]) + source[at[0]:at[1]])
		from = at[1]
	}
	return b.String() + characters.Replace(source[from:])
}

// Expressions and tags mean the same as in jinja2, including errors, or are refused; a minimum of lines must render.
func TestExpressionsAsJinja2(t *testing.T) {
	r := readRecorded(t)
	data, err := os.ReadFile("testdata/expressions.txt")
	if err != nil {
		t.Fatal(err)
	}
	sources := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(sources) != len(r.Expressions) || len(sources) < 120 {
		t.Fatalf("%d expressions, %d recorded", len(sources), len(r.Expressions))
	}
	context := map[string]any{}
	for name, v := range r.Context {
		context[name] = v
	}
	rendered := 0
	for i, e := range r.Expressions {
		source := outside(sources[i])
		tmpl, err := Parse(source)
		got := ""
		if err == nil {
			got, err = tmpl.Render(nil, Options{Variables: context, Now: recordedTime})
		}
		if err == nil || e.Text == nil {
			e.check(t, source, got, err)
			rendered++
		} else if !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: the error %v has no line", source, err)
		}
	}
	if rendered < 95 {
		t.Errorf("%d lines are rendered as in jinja2", rendered)
	}
	t.Logf("%d of %d lines are rendered as in jinja2, the others are refused", rendered, len(sources))
}

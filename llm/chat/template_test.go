package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func render1(t *testing.T, source string, opts Options, messages ...Message) (string, error) {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(messages, opts)
}

var hello = Message{Role: "user", Content: "Hello"}

// It is an error if a conversation has no text, or if the template reads an undefined value.
func TestNeverEmpty(t *testing.T) {
	for source, want := range map[string]string{
		"":                                    "no text for 1 messages",
		" \n":                                 "no text for 1 messages",
		"{% if false %}x{% endif %}":          "no text for 1 messages",
		"{{ message.content }}":               "line 1: message is undefined",
		"a\n{{ messages[0].contents + 'x' }}": "line 2: contents of a dict is undefined",
		"{{ messages[0].content.strp() }}":    "line 1: strp of a str is undefined",
		"{{ nothing(1) }}":                    "line 1: nothing is undefined",
		"{% macro m() %}{{ varargs }}{% endmacro %}{{ m() " +
			"}}": `line 1: the variable "varargs" is not supported`,
		"{% for x in 'a' %}{{ loop.changed }}{% endfor %}": "line 1: loop.changed is not supported",
		"{{ messages.count(1) }}": "line 1: the method count of a list is " +
			"not supported",
		"a{% if 'x'.find is defined %}b{% endif %}": "line 1: the method find of a str is " +
			"not supported",
		"{{ messages[0].copy() }}": "line 1: this method of a dict is not " +
			"supported",
		"{{ range == range }}": "line 1: comparing a function with a " +
			"function is not supported",
		"{{ 'a'|safe == 'a' }}": "line 1: comparing a Markup with a str " +
			"is not supported",
		"{{ [1, 2, 3][::2] }}": "line 1: a slice with a step, other " +
			"than [::-1], is not supported",
		"{% set n = namespace(a=1) %}{% for x in 'a' if n.a %}{% endfor %}": "a namespace in the condition of a loop",
		"{% set g = [1]|map('string') %}{{ g|list }}{{ g|list }}": "reading a generator that was already " +
			"consumed",
	} {
		if got, err := render1(t, source, Options{}, hello); err == nil || !strings.Contains(err.Error(), want) ||
			got != "" {
			t.Errorf("%q: %q, %v; expected the error %q", source, got, err, want)
		}
	}
	if got, err := render1(t, "", Options{}); err != nil || got != "" {
		t.Errorf("no messages: %q, %v", got, err)
	}
}

// Parse returns an error with the line for invalid or unsupported syntax.
func TestParseErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\n\n{% if x %}":                  "line 3: {% if %} in line 3 has no end",
		"\n{% endfor %}":                   `line 2: the tag "endfor" is not supported here`,
		"{{ x|escape }}":                   `line 1: the filter "escape" is not supported`,
		"{{ x is nice }}":                  `line 1: the test "nice" is not supported`,
		"{{ x|batch(2) }}":                 `line 1: the filter "batch" is not supported`,
		"{% include 'x' %}":                `line 1: the tag "include" is not supported`,
		"{% call m() %}":                   `line 1: the tag "call" is not supported`,
		"{% filter upper %}":               `line 1: the tag "filter" is not supported`,
		"{% raw %}":                        `line 1: the tag "raw" is not supported`,
		"{% break %}":                      "line 1: break outside of a loop",
		"{{ 1 < 2 < 3 }}":                  "line 1: a chained comparison is not supported",
		"{{ x.__class__ }}":                `line 1: attribute "__class__" is not supported`,
		"{%%}":                             `line 1: found "%}", expected a name`,
		"{{ x":                             "line 1: a tag or comment has no end",
		"{{ 'x }}":                         "a string that has no end",
		"{{ größe }}":                      "unexpected 'ö'",
		"\xff":                             "not UTF-8",
		strings.Repeat("{% if x %}", 1000): "nested more than",
		"{{" + strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100) + "}}": "nested more than",
	} {
		if _, err := Parse(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, expected %q", source, err, want)
		}
	}
}

// A template that runs away ends with an error.
func TestBounds(t *testing.T) {
	defer func(work int) { maxWork = work }(maxWork)
	maxWork = 20_000_000
	for name, source := range map[string]string{
		"steps": "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = a %}{% endfor %}{% endfor %}",
		"text":  "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"block": "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set x %}{{ ns.s }}{{ ns.s }}{% endset " +
			"%}{% set ns.s = x %}{% endfor %}",
		"macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"deep": "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l " +
			"}}",
		"range": "{{ range(100001)|length }}",
		"work":  "{% set l = range(99999)|list %}{% for a in l %}{% if 5 in l|list %}{% endif %}{% endfor %}",
		"equal": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ " +
			"ns.l == [ns.l[0], ns.l[1]] }}",
		"times": "{{ 'abc' * 99999999999 }}",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := tmpl.Render([]Message{hello}, Options{}); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
}

func TestRaisedError(t *testing.T) {
	_, err := render1(t, "{% if messages %}{{ raise_exception('roles: ' ~ messages[0].role) }}{% endif %}", Options{},
		hello)
	var raised *RaisedError
	if !errors.As(err, &raised) || raised.Message != "roles: user" {
		t.Errorf("%v", err)
	}
}

func TestContinueFinalMessage(t *testing.T) {
	const source = "{% for m in messages %}[{{ m.content if m.content is string else m.content[0].text }}]{% endfor %}"
	opts := Options{ContinueFinalMessage: true}
	if got, err := render1(t, source, opts, hello, Message{Role: "assistant", Content: "a b "}); err != nil ||
		got != "[Hello][a b " {
		t.Errorf("%q, %v", got, err)
	}
	for want, c := range map[string]struct {
		source   string
		opts     Options
		messages []Message
	}{
		"the list of messages is empty": {source, opts, nil},
		"also add a generation prompt": {source, Options{ContinueFinalMessage: true, AddGenerationPrompt: true},
			[]Message{hello}},
		"the content of the last message is not text": {source, opts,
			[]Message{{Role: "user", Fields: json.RawMessage(`{"content":null}`)}}},
		"leaves out the text of the last mes": {"x", opts, []Message{hello}},
	} {
		if got, err := render1(t, c.source, c.opts, c.messages...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v; expected %q", got, err, want)
		}
	}
}

// Fields extend a message, replace its content, or are the whole message.
func TestMessageFields(t *testing.T) {
	const source = "{% for m in messages %}{{ m|tojson }}\n{% endfor %}"
	got, err := render1(t, source, Options{},
		Message{Role: "user", Content: "a", Fields: json.RawMessage(`{"z":1,"name":"n"}`)},
		Message{Role: "user", Fields: json.RawMessage(`{"content":[{"type":"text","text":"é"}]}`)},
		Message{Fields: json.RawMessage(`{"tool_calls":[],"role":"assistant"}`)},
		Message{Role: "assistant", Content: "b", Fields: json.RawMessage(`{"reasoning":"r"}`)})
	want := `{"role": "user", "content": "a", "z": 1, "name": "n"}
{"role": "user", "content": [{"type": "text", "text": "é"}]}
{"tool_calls": [], "role": "assistant"}
{"thinking": "r", "role": "assistant", "content": "b", "reasoning": "r", "reasoning_content": "r"}
`
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{`[]`, `{"a"`, `{"a":1} x`} {
		if _, err := render1(t, source, Options{}, Message{Role: "user", Fields: json.RawMessage(bad)}); err == nil ||
			!strings.Contains(err.Error(), "message 0: fields") {
			t.Errorf("fields %s: %v", bad, err)
		}
	}
}

func TestVariables(t *testing.T) {
	tmpl, err := Parse("{{ bos_token }}{{ n + 1 }}{{ tools is none }}{{ documents|length }}{{ l|tojson }}{{ " +
		"strftime_now('%H:%M') }}")
	if err != nil {
		t.Fatal(err)
	}
	tmpl.Tokens = map[string]string{"bos_token": "<s>"}
	got, err := tmpl.Render(nil, Options{Variables: map[string]any{"n": 1, "l": []any{1.5, "x", nil},
		"documents": json.RawMessage(`[{"text":"d"}]`)}, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil || got != `<s>2True1[1.5, "x", null]03:04` {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := tmpl.Render(nil, Options{Tools: json.RawMessage(`{}`)}); err == nil ||
		!strings.Contains(err.Error(), "tools: a JSON dict") {
		t.Errorf("%v", err)
	}
	if _, err := tmpl.Render(nil, Options{Variables: map[string]any{"n": func() {}}}); err == nil {
		t.Error("a function is a variable")
	}
}

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Templates and tokens are found in every form that transformers reads.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		path, want string
		opts       Options
	}{
		"config": {map[string]string{
			"tokenizer_config.json": `{"chat_template":"{{ eos_token }}c","eos_token":"E","add_bos_token":true}`},
			"tokenizer_config.json", "Ec", Options{}},
		"token object": {map[string]string{
			"tokenizer_config.json": `{"chat_template":"{{ bos_token }}c{{ pad_token is defined ` +
				`}}","bos_token":{"content":"B","lstrip":false},"pad_token":null}`},
			"", "BcFalse", Options{}},
		"file": {map[string]string{"x.jinja": "file"}, "x.jinja", "file", Options{}},
		"both": {map[string]string{"chat_template.jinja": "j{{ bos_token }}",
			"tokenizer_config.json": `{"chat_template":"c","bos_token":"B"}`},
			"", "jB", Options{}},
		"default": {map[string]string{
			"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default",` +
				`"template":"d"}]}`}, "", "d", Options{}},
		"tool_use": {map[string]string{
			"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default",` +
				`"template":"d"}]}`}, "", "t", Options{Tools: json.RawMessage(`[]`)}},
		"additional": {map[string]string{"chat_template.jinja": "j", "additional_chat_templates/tool_use.jinja": "t"},
			"", "t", Options{Tools: json.RawMessage(`[]`)}},
		"additional, and none of them asked for": {map[string]string{"chat_template.jinja": "j",
			"additional_chat_templates/tool_use.jinja": "t", "tokenizer_config.json": `{"chat_template":"c"}`},
			"", "j", Options{}},
	} {
		tmpl, err := Read(filepath.Join(write(t, t.TempDir(), c.files), c.path))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := tmpl.Render([]Message{hello}, c.opts); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":     {nil, "has neither chat_template.jinja nor a tokenizer_config.json with a chat_template"},
		"no template": {map[string]string{"tokenizer_config.json": `{}`}, "has neither chat_template.jinja"},
		"no JSON":     {map[string]string{"tokenizer_config.json": `{`}, "tokenizer_config.json: "},
		"a number": {map[string]string{"tokenizer_config.json": `{"chat_template":3}`}, "neither a string nor a " +
			"list"},
		"bad": {map[string]string{"chat_template.jinja": "{% if"}, "chat_template.jinja: line 1"},
	} {
		if _, err := Read(write(t, t.TempDir(), c.files)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
	tmpl, err := Read(write(t, t.TempDir(),
		map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"a","template":"t"}]}`}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(nil, Options{}); err == nil ||
		!strings.Contains(err.Error(), "no template is named default") {
		t.Errorf("%v", err)
	}
}

// Several goroutines render a template at the same time.
func TestConcurrentRender(t *testing.T) {
	tmpl, err := Parse("{% macro m(x) %}{% if x %}{{ x.content }}{% endif %}{% endmacro %}" +
		"{% for k in messages if k %}{{ m(k) }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for range 8 {
		go func() {
			got, err := tmpl.Render([]Message{hello}, Options{})
			if err == nil && got != "Hello" {
				err = errors.New(got)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

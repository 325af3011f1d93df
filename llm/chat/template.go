// Package chat turns conversations into prompts by a model's chat template, as transformers' apply_chat_template does.
//
// Templates are jinja2. What is not supported is an error, when a template is parsed or at the latest when it is
// rendered: never another prompt.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Template is a chat template, with the special tokens that it may write.
type Template struct {
	// Tokens are special tokens by their names (bos_token, eos_token, …), as variables of the template.
	Tokens map[string]string

	program program
	work    int
	named   map[string]*Template // the others of a model with several
}

// Options are what a template reads besides the messages.
type Options struct {
	// AddGenerationPrompt asks for what begins the assistant's answer, at the end.
	AddGenerationPrompt bool
	// ContinueFinalMessage leaves the last message open, for the model to go on with: the prompt ends with its text. It
	// is transformers' continue_final_message.
	ContinueFinalMessage bool
	// Tools is a JSON list of the functions that the model may call, as JSON schemas, or nil.
	Tools json.RawMessage
	// Documents is a JSON list of documents for retrieval, or nil.
	Documents json.RawMessage
	// Variables are further variables (enable_thinking, …): anything that has a JSON form. They come before the special
	// tokens of that name.
	Variables map[string]any
	// Name chooses one of several templates; "" is tool_use where there are tools and such a template, else default.
	Name string
	// Now is the time that strftime_now returns; zero is the present, in local time.
	Now time.Time
}

// Parse reads a template's source. The error names the line of what is no jinja2, or is not supported: tags other than
// if, for, set, macro, call, filter, with, raw, generation, break and continue; and filters and tests that are made for
// HTML.
func Parse(source string) (*Template, error) { return parse(source, maxWork) }

func parse(source string, work int) (t *Template, err error) {
	defer catch(&err)
	require(utf8.ValidString(source), "chat template: not UTF-8")
	require(len(source) <= 16<<20, "chat template: more than 16 MiB")
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	r := &runner{off: true, work: math.MaxInt, deadline: time.Now().Add(maxTime), program: program{
		source: strings.TrimSuffix(source, "\n"), conditions: map[int]int{}, ends: map[int]int{},
		callers: map[int]bool{}}}
	err = r.try(func() {
		r.lex()
		r.body()
	})
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{program: r.program, work: work}, nil
}

// Render returns the prompt for messages. The error of a template that refuses them is a *RaisedError; that it reads
// what is undefined, has no text at all for messages, writes more than 64 MiB or works for more than a minute is an
// error too.
func (t *Template) Render(messages []Message, opts Options) (prompt string, err error) {
	chosen, err := t.choose(opts)
	vars := map[string]any{}
	if err == nil {
		vars, err = t.variables(messages, opts)
	}
	final := ""
	if err == nil && opts.ContinueFinalMessage {
		final, err = openFinalMessage(vars, opts)
	}
	if err == nil {
		prompt, err = chosen.run(vars, opts.Now)
	}
	if err == nil && opts.ContinueFinalMessage {
		prompt, err = cutFinalMessage(prompt, final)
	}
	if err == nil && strings.TrimSpace(prompt) == "" && len(messages) > 0 {
		err = fmt.Errorf("no text for %d messages", len(messages))
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return prompt, nil
}

func (t *Template) run(vars map[string]any, now time.Time) (string, error) {
	if now.IsZero() {
		now = time.Now()
	}
	r := &runner{program: t.program, scope: &scope{vars: vars}, out: &strings.Builder{}, now: now, work: t.work,
		deadline: time.Now().Add(maxTime)}
	err := r.try(func() { r.body() })
	var raised *RaisedError
	if err != nil && !errors.As(err, &raised) {
		err = fmt.Errorf("%s: %w", r.place(), err)
	}
	return r.out.String(), err
}

// choose returns one of several templates as transformers' get_chat_template does.
func (t *Template) choose(opts Options) (*Template, error) {
	name := opts.Name
	switch {
	case t.named == nil && name == "":
		return t, nil
	case name == "" && opts.Tools != nil && t.named["tool_use"] != nil:
		name = "tool_use"
	case name == "":
		name = "default"
	}
	if chosen := t.named[name]; chosen != nil {
		return chosen, nil
	}
	names := "there is one, without a name"
	if t.named != nil {
		names = "there are " + strings.Join(slices.Sorted(maps.Keys(t.named)), ", ")
	}
	return nil, fmt.Errorf("there is none of the name %q: %s", name, names)
}

// variables are those that transformers passes to a template.
func (t *Template) variables(messages []Message, opts Options) (vars map[string]any, err error) {
	vars = map[string]any{}
	for name, token := range t.Tokens {
		vars[name] = token
	}
	for name, v := range opts.Variables {
		data, err := json.Marshal(v)
		if err == nil {
			vars[name], err = decode(data)
		}
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	list := make([]any, len(messages))
	for i, m := range messages {
		if list[i], err = m.value(); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	vars["messages"], vars["add_generation_prompt"] = newList(list...), opts.AddGenerationPrompt
	for name, data := range map[string]json.RawMessage{"tools": opts.Tools, "documents": opts.Documents} {
		if vars[name] = nil; data == nil {
			continue
		}
		if vars[name], err = decode(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if kind := typeName(vars[name]); kind != "list" && kind != "NoneType" {
			return nil, fmt.Errorf("%s: a JSON %s, expected a list", name, kind)
		}
	}
	return vars, nil
}

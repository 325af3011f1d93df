// Package chat renders conversations to prompts with a model's chat template, like transformers' apply_chat_template.
//
// Templates are written in jinja2, and this package implements the parts that chat templates use. Anything else is an
// error that names it when a template is parsed or at the latest when it is rendered. The package never returns a
// different prompt.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// The size limits of a template and of a tokenizer_config.json, in bytes. Real ones have 30 KB and, because of added
// tokens, some MB.
const (
	maxSource = 1 << 20
	maxConfig = 64 << 20
)

// Template is a chat template with its special tokens.
type Template struct {
	// Tokens are special tokens by name (bos_token, eos_token, …), which the template reads as variables.
	Tokens map[string]string

	bodies map[string]node // by name: "default", and others such as "tool_use" if a model has several
}

// Options are the inputs of a template besides the messages.
type Options struct {
	// AddGenerationPrompt appends the start of the assistant's answer.
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the prompt with the text of the last message, for the model to continue.
	ContinueFinalMessage bool
	// Tools is a JSON list of functions that the model may call, as JSON schemas, or nil.
	Tools json.RawMessage
	// Variables are further variables (documents, enable_thinking, …) of any type that has a JSON form.
	Variables map[string]any
	// Now is the time that strftime_now returns. Zero is the current local time.
	Now time.Time
}

// Parse parses a template's source. The error names the line of invalid or unsupported syntax.
func Parse(source string) (*Template, error) {
	t := &Template{bodies: map[string]node{}}
	return t, t.add("default", source, "chat template")
}

// add parses one of the templates. what names its source in errors.
func (t *Template) add(name, source, what string) error {
	if len(source) > maxSource {
		return fmt.Errorf("%s: it has %d bytes, more than the limit of %d", what, len(source), maxSource)
	}
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := lexer{rest: strings.TrimSuffix(source, "\n"), line: 1}
	err := try(func() int { return l.line }, l.lex)
	if err == nil {
		p := parser{tokens: l.tokens}
		err = try(func() int { return p.peek().line }, func() { t.bodies[name], _ = p.body() })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Render returns the prompt for messages. If the template refuses them the error is a *RaisedError. It is also an error
// if the template reads an undefined value, has no text for messages, writes more than 64 MiB, makes values of more
// than 256 MiB, or exceeds the bound on work.
func (t *Template) Render(messages []Message, opts Options) (prompt string, err error) {
	err = try(nil, func() {
		prompt = t.render(messages, opts)
		require(strings.TrimSpace(prompt) != "" || len(messages) == 0, "no text for %d messages", len(messages))
	})
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return prompt, nil
}

func (t *Template) render(messages []Message, opts Options) string {
	body := t.bodies["default"]
	if tools := t.bodies["tool_use"]; tools != nil && opts.Tools != nil {
		body = tools
	}
	require(body != nil, "it has several templates, but no template is named default")
	vars, final := t.variables(messages, opts), ""
	if opts.ContinueFinalMessage {
		final = openFinalMessage(vars["messages"].(*sequence).items, opts)
	}
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	r := &renderer{vars: vars, out: &strings.Builder{}, now: opts.Now, work: maxWork, bytes: maxBytes}
	err := try(func() int { return r.line }, func() { body(r) })
	require(err == nil, "%w", err)
	if opts.ContinueFinalMessage {
		return cutFinalMessage(r.out.String(), final)
	}
	return r.out.String()
}

// variables returns the variables that transformers passes to a template.
func (t *Template) variables(messages []Message, opts Options) map[string]any {
	vars := map[string]any{"tools": nil, "documents": nil, "add_generation_prompt": opts.AddGenerationPrompt}
	for name, token := range t.Tokens {
		vars[name] = token
	}
	for name, v := range opts.Variables {
		data, err := json.Marshal(v)
		require(err == nil, "variable %s: %w", name, err)
		vars[name] = decode("variable "+name, data)
	}
	list := newList()
	for i, m := range messages {
		list.items = append(list.items, m.value(fmt.Sprintf("message %d", i)))
	}
	vars["messages"] = list
	if opts.Tools != nil {
		vars["tools"] = decode("tools", opts.Tools)
		kind := typeName(vars["tools"])
		require(kind == "list" || kind == "NoneType", "tools: a JSON %s, expected a list", kind)
	}
	return vars
}

// Read reads a template from a chat_template.jinja, from a tokenizer_config.json (chat_template is a string or a list
// of named templates; bos_token and others are strings or objects with a content), or from a folder with one or both.
// As in transformers, chat_template.jinja takes precedence, and the tokens come from tokenizer_config.json.
func Read(path string) (*Template, error) {
	t := &Template{Tokens: map[string]string{}, bodies: map[string]node{}}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = t.readFolder(path)
	} else if strings.HasSuffix(path, ".json") {
		err = t.readConfig(path)
	} else {
		err = t.readSource("default", path)
	}
	if err == nil && len(t.bodies) == 0 {
		err = fmt.Errorf("%s has neither chat_template.jinja nor a tokenizer_config.json with a chat_template", path)
	}
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return t, nil
}

func (t *Template) readFolder(folder string) error {
	err := t.readConfig(filepath.Join(folder, "tokenizer_config.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	main, _ := fs.Glob(os.DirFS(folder), "chat_template.jinja")
	more, _ := fs.Glob(os.DirFS(folder), "additional_chat_templates/*.jinja")
	if len(main)+len(more) > 0 { // templates of tokenizer_config.json are ignored then
		clear(t.bodies)
	}
	for i, file := range append(main, more...) {
		name := strings.TrimSuffix(path.Base(file), ".jinja")
		if i < len(main) {
			name = "default"
		}
		if err := t.readSource(name, filepath.Join(folder, file)); err != nil {
			return err
		}
	}
	return nil
}

// readSource reads a template file.
func (t *Template) readSource(name, path string) error {
	source, err := regular.ReadFile(path, maxSource)
	if err == nil {
		err = t.add(name, string(source), path)
	}
	return err
}

// readConfig reads tokenizer_config.json, which may have no template.
func (t *Template) readConfig(path string) error {
	data, err := regular.ReadFile(path, maxConfig)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for name, raw := range fields {
		var token struct{ Content string }
		isText := json.Unmarshal(raw, &token.Content) == nil
		if strings.HasSuffix(name, "_token") && (isText || json.Unmarshal(raw, &token) == nil) && token.Content != "" {
			t.Tokens[name] = token.Content
		}
	}
	var source string
	var named []struct{ Name, Template string }
	switch raw := fields["chat_template"]; {
	case raw == nil || string(raw) == "null":
	case json.Unmarshal(raw, &source) == nil:
		return t.add("default", source, path)
	case json.Unmarshal(raw, &named) != nil:
		return fmt.Errorf("%s: chat_template is neither a string nor a list of {name, template}", path)
	}
	for _, one := range named {
		if err := t.add(one.Name, one.Template, path+", "+one.Name); err != nil {
			return err
		}
	}
	return nil
}

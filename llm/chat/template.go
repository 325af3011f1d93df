// Package chat turns conversations into prompts by a model's chat template, as transformers' apply_chat_template does.
//
// Templates are jinja2. MiniJinja for Go, by jinja2's author, runs them; a translation before (translate.go) gives
// it the meaning of Python for what it does otherwise. What is not supported is an error, when a template is parsed or
// at the latest when it is rendered: never another prompt.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	minijinja "github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/syntax"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// maxSteps is the number of statements and expressions that a rendering may take: some seconds of work.
const maxSteps = 20_000_000

// Template is a chat template, with the special tokens that it may write.
type Template struct {
	// Tokens are special tokens by their names (bos_token, eos_token, …), as variables of the template.
	Tokens map[string]string

	compiled *minijinja.Template
	sites    []string
	work     int
	named    map[string]*Template // the others of a model with several
}

// Options are what a template reads besides the messages.
type Options struct {
	// AddGenerationPrompt asks for what begins the assistant's answer, at the end.
	AddGenerationPrompt bool
	// ContinueFinalMessage leaves the last message open, for the model to go on with: the prompt ends with its text. It is
	// transformers' continue_final_message.
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
	// Now is the time that strftime_now gives; zero is the present, in local time.
	Now time.Time
}

// Parse reads a template's source. The error names the line of what is no jinja2, or is not supported: tags other than
// if, for, set, macro, call, filter, with, raw, generation, break and continue; and filters and tests that are made for
// HTML.
func Parse(source string) (*Template, error) { return parse(source, maxSteps, maxWork) }

func parse(source string, steps uint64, work int) (*Template, error) {
	if !utf8.ValidString(source) {
		return nil, errors.New("chat template: not UTF-8")
	}
	if len(source) > maxSource {
		return nil, errors.New("chat template: more than 16 MiB")
	}
	text, sites, err := translate(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	env := minijinja.EmptyEnvironment()
	env.SetWhitespace(syntax.WhitespaceConfig{KeepTrailingNewline: true})
	env.SetFuel(&steps)
	addFunctions(env)
	var compiled *minijinja.Template
	err = guard(func() error {
		compiled, err = env.TemplateFromString(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{compiled: compiled, sites: sites, work: work}, nil
}

// Render returns the prompt for messages. A template that refuses them gives a *RaisedError; one that reads what is
// undefined, gives no text at all for messages, writes more than 64 MiB or works for more than a minute is an error too.
func (t *Template) Render(messages []Message, opts Options) (string, error) {
	chosen, err := t.choose(opts)
	if err != nil {
		return "", err
	}
	vars, err := t.variables(messages, opts)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	if opts.ContinueFinalMessage {
		if err := openFinalMessage(vars, opts); err != nil {
			return "", fmt.Errorf("chat template: %w", err)
		}
	}
	r := &render{sites: chosen.sites, now: opts.Now, work: chosen.work, deadline: time.Now().Add(maxTime)}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	var out string
	err = guard(func() error {
		out, err = chosen.compiled.RenderCtx(withRender(r), vars)
		return err
	})
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	if opts.ContinueFinalMessage {
		if out, err = cutFinalMessage(out, vars); err != nil {
			return "", fmt.Errorf("chat template: %w", err)
		}
	}
	if strings.TrimSpace(out) == "" && len(messages) > 0 {
		return "", fmt.Errorf("chat template: no text for %d messages", len(messages))
	}
	return out, nil
}

// guard makes errors of panics of MiniJinja, which calls itself alpha software, and takes from its errors the line, which
// is one of the translated source.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("MiniJinja failed: %v", r)
		}
	}()
	err = f()
	var e *minijinja.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%s: %s", e.Kind, e.Message)
	}
	return err
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
	return nil, fmt.Errorf("chat template: there is none of the name %q: %s", name, t.names())
}

// variables are those that transformers gives a template.
func (t *Template) variables(messages []Message, opts Options) (map[string]any, error) {
	vars := map[string]any{}
	for name, token := range t.Tokens {
		vars[name] = value.FromString(token)
	}
	for name, v := range opts.Variables {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		if vars[name], err = decode(data); err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	list := make([]value.Value, len(messages))
	for i, m := range messages {
		var err error
		if list[i], err = m.value(); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	vars["messages"] = value.FromSlice(list)
	vars["add_generation_prompt"] = value.FromBool(opts.AddGenerationPrompt)
	for name, data := range map[string]json.RawMessage{"tools": opts.Tools, "documents": opts.Documents} {
		vars[name] = value.None()
		if data == nil {
			continue
		}
		v, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, ok := items(v); !ok && !v.IsNone() {
			return nil, fmt.Errorf("%s: a JSON %s, expected a list", name, typeName(v))
		}
		vars[name] = v
	}
	return vars, nil
}

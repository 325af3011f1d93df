package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/llm/chat"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/llm/tokenizer"
)

// texts are the prompts, with the tokenizer and the configuration beside the model.
type texts struct {
	prompts   []string // nil if ids are given
	ids       [][]int64
	tokenizer *tokenizer.Tokenizer // nil without one
	template  *chat.Template       // of chats, once it is read
	path      string               // of the tokenizer
	stop      []int64
	positions int
}

// texts reads the tokenizer, the configuration and the prompts.
func (f *generateFlags) texts(model string) (*texts, error) {
	t := &texts{}
	if len(f.ids) == 0 || f.tokenizer != "" { // ids are answered with ids
		if err := t.read(f.tokenizer, filepath.Dir(model), f.golden != ""); err != nil {
			return nil, err
		}
	}
	if err := t.configure(f, model); err != nil {
		return nil, err
	}
	if f.golden != "" {
		return t, nil
	}
	if len(f.ids) > 0 {
		for _, list := range f.ids {
			ids, err := parseIDs("ids", list)
			if err != nil {
				return nil, err
			}
			t.ids = append(t.ids, ids)
		}
		return t, nil
	}
	return t, t.encode(f)
}

// read reads the named tokenizer, or the one in the model's folder, which may be missing if optional is set.
func (t *texts) read(path, folder string, optional bool) (err error) {
	t.path = tokenizer.Find(cmp.Or(path, folder))
	if _, missing := os.Stat(t.path); missing != nil && path == "" {
		if optional {
			t.path = ""
			return nil
		}
		return fmt.Errorf("%s was not found beside the model: use --tokenizer FILE or FOLDER, or --ids instead of text",
			tokenizer.File)
	}
	t.tokenizer, err = tokenizer.Read(t.path)
	if err != nil && path == "" && optional { // recorded ids need no tokenizer
		t.path, t.tokenizer, err = "", nil, nil
	}
	return err
}

// configure reads the end tokens and the number of positions from the configuration beside the model, or else beside
// the tokenizer.
func (t *texts) configure(f *generateFlags, model string) error {
	folders := []string{filepath.Dir(model)}
	if t.path != "" {
		folders = append(folders, filepath.Dir(t.path))
	}
	end := ""
	for _, folder := range folders {
		c, err := generate.ReadConfig(folder)
		if err != nil {
			return err
		}
		if len(t.stop) == 0 && !f.ignoreEOS {
			t.stop = c.EOS
		}
		if end == "" {
			end = c.EOSToken
		}
		if t.positions == 0 {
			t.positions = c.Positions
		}
	}
	if end != "" && t.tokenizer != nil && !f.ignoreEOS && (f.chat || len(t.stop) == 0) {
		if id, ok := t.tokenizer.ID(end); ok {
			t.stop = append(slices.Clip(t.stop), id)
		}
	}
	for _, s := range f.stopTokens {
		id, err := strconv.ParseInt(s, 10, 64)
		known := err == nil && id >= 0
		if !known && t.tokenizer == nil {
			return fmt.Errorf("--stop-token %q: without a tokenizer it must be an id", s)
		}
		if !known {
			if id, known = t.tokenizer.ID(s); !known {
				return fmt.Errorf("--stop-token %q: %s has no such token", s, t.path)
			}
		}
		t.stop = append(slices.Clip(t.stop), id)
	}
	if len(f.stops) > 0 && t.tokenizer == nil {
		return errors.New("--stop is text and needs a tokenizer")
	}
	for _, s := range f.stops { // a special token is not text
		if id, ok := t.tokenizer.ID(s); ok && t.tokenizer.Decode([]int64{id}, true) == "" {
			t.stop = append(slices.Clip(t.stop), id)
		}
	}
	return nil
}

// maxPrompt is the size of a file with a prompt, in bytes.
const maxPrompt = 64 << 20

// encode reads the prompts and converts them to ids.
func (t *texts) encode(f *generateFlags) error {
	for _, p := range f.prompts {
		if p == "-" {
			b, err := io.ReadAll(os.Stdin)
			if err != nil {
				return fmt.Errorf("cannot read the prompt from stdin: %w", err)
			}
			p = strings.TrimSuffix(string(b), "\n")
		}
		t.prompts = append(t.prompts, p)
	}
	if f.promptFile != "" {
		b, err := regular.ReadFile(f.promptFile, maxPrompt)
		if err != nil {
			return fmt.Errorf("cannot read the prompt: %w", err)
		}
		t.prompts = append(t.prompts, strings.TrimSuffix(string(b), "\n"))
	}
	for i, p := range t.prompts {
		special := true
		if f.chat {
			var err error
			if p, err = f.render(t, p); err != nil {
				return err
			}
			special = false // the template writes them
		}
		ids := t.tokenizer.Encode(p, special)
		if len(ids) == 0 {
			return fmt.Errorf("prompt %d has no tokens", i)
		}
		t.ids = append(t.ids, ids)
	}
	return nil
}

// fits warns if the tokenizer seems to belong to another model.
func (t *texts) fits(a *app, g *opened) {
	size, vocabulary := int64(0), g.Vocabulary()
	if t.tokenizer != nil {
		size = int64(t.tokenizer.Size())
	}
	// Models pad their vocabulary to round numbers.
	if size > 0 && vocabulary > 0 && (size > vocabulary+vocabulary/100 || size < vocabulary*9/10) {
		a.say("%s has %d tokens, but %s has %d: it seems to be the tokenizer of another model", t.path, size, g.path,
			vocabulary)
	}
}

// render puts a prompt into the chat template: the one of --template, or the one of the tokenizer's folder. Either may
// use the folder's special tokens.
func (f *generateFlags) render(t *texts, prompt string) (string, error) {
	if t.template == nil {
		own, err := chat.Read(filepath.Dir(t.path))
		if t.template = own; f.template != "" {
			if t.template, err = chat.Read(f.template); err == nil && own != nil && len(t.template.Tokens) == 0 {
				t.template.Tokens = own.Tokens
			}
		}
		if err != nil {
			return "", fmt.Errorf("%w\n(use --template FILE to name the chat template)", err)
		}
	}
	var messages []chat.Message
	if f.system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: f.system})
	}
	messages = append(messages, chat.Message{Role: "user", Content: prompt})
	return t.template.Render(messages, chat.Options{AddGenerationPrompt: true})
}

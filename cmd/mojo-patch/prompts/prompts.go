// Package prompts reads prompts and their tokenizer as the flags of generate and audit say.
package prompts

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

// PromptFlags name the prompts of a model, its tokenizer, and the tokens that end a text.
type PromptFlags struct {
	Tokenizer  string   // file or folder
	Prompts    []string // texts, or "-" for stdin
	PromptFile string   // a file with one more prompt
	IDs        []string // prompts as token ids
	Chat       bool     // put the prompts into a chat template
	Template   string   // the file of the template, or ""
	System     string   // the system message
	Stops      []string // texts that end a text
	StopTokens []string // ids or texts of tokens that end a text
	IgnoreEOS  bool     // do not stop at the end tokens of the configuration
	Golden     string   // recorded generations instead of prompts
}

// Texts are the prompts, with the tokenizer and the configuration beside the model.
type Texts struct {
	Prompts   []string             // nil if ids are given
	IDs       [][]int64            // of each prompt
	Tokenizer *tokenizer.Tokenizer // nil without one
	template  *chat.Template       // of chats, once it is read
	Path      string               // of the tokenizer
	Stop      []int64              // ids of the tokens that end a text
	Positions int                  // the most tokens of a text, 0 if not known
}

// Texts reads the tokenizer, the configuration and the prompts.
func (f *PromptFlags) Texts(model string) (*Texts, error) {
	t := &Texts{}
	if len(f.IDs) == 0 || f.Tokenizer != "" { // ids are answered with ids
		if err := t.read(f.Tokenizer, filepath.Dir(model), f.Golden != ""); err != nil {
			return nil, err
		}
	}
	if err := t.configure(f, model); err != nil {
		return nil, err
	}
	if f.Golden != "" {
		return t, nil
	}
	if len(f.IDs) > 0 {
		for _, list := range f.IDs {
			ids, err := ParseIDs("ids", list)
			if err != nil {
				return nil, err
			}
			t.IDs = append(t.IDs, ids)
		}
		return t, nil
	}
	return t, t.encode(f)
}

// read reads the named tokenizer, or the one in the model's folder, which may be missing if optional is set.
func (t *Texts) read(path, folder string, optional bool) (err error) {
	t.Path = tokenizer.Find(cmp.Or(path, folder))
	if _, missing := os.Stat(t.Path); missing != nil && path == "" {
		if optional {
			t.Path = ""
			return nil
		}
		return fmt.Errorf("%s was not found beside the model: use --tokenizer FILE or FOLDER, or --ids instead of text",
			tokenizer.File)
	}
	t.Tokenizer, err = tokenizer.Read(t.Path)
	if err != nil && path == "" && optional { // recorded ids need no tokenizer
		t.Path, t.Tokenizer, err = "", nil, nil
	}
	return err
}

// configure reads the end tokens and the number of positions from the configuration beside the model, or else beside
// the tokenizer.
func (t *Texts) configure(f *PromptFlags, model string) error {
	folders := []string{filepath.Dir(model)}
	if t.Path != "" {
		folders = append(folders, filepath.Dir(t.Path))
	}
	end := ""
	for _, folder := range folders {
		c, err := generate.ReadConfig(folder)
		if err != nil {
			return err
		}
		if len(t.Stop) == 0 && !f.IgnoreEOS {
			t.Stop = c.EOS
		}
		if end == "" {
			end = c.EOSToken
		}
		if t.Positions == 0 {
			t.Positions = c.Positions
		}
	}
	if end != "" && t.Tokenizer != nil && !f.IgnoreEOS && (f.Chat || len(t.Stop) == 0) {
		if id, ok := t.Tokenizer.ID(end); ok {
			t.Stop = append(slices.Clip(t.Stop), id)
		}
	}
	for _, s := range f.StopTokens {
		id, err := strconv.ParseInt(s, 10, 64)
		known := err == nil && id >= 0
		if !known && t.Tokenizer == nil {
			return fmt.Errorf("--stop-token %q: without a tokenizer it must be an id", s)
		}
		if !known {
			if id, known = t.Tokenizer.ID(s); !known {
				return fmt.Errorf("--stop-token %q: %s has no such token", s, t.Path)
			}
		}
		t.Stop = append(slices.Clip(t.Stop), id)
	}
	if len(f.Stops) > 0 && t.Tokenizer == nil {
		return errors.New("--stop is text and needs a tokenizer")
	}
	for _, s := range f.Stops { // a special token is not text
		if id, ok := t.Tokenizer.ID(s); ok && t.Tokenizer.Decode([]int64{id}, true) == "" {
			t.Stop = append(slices.Clip(t.Stop), id)
		}
	}
	return nil
}

// maxPrompt is the size of a file with a prompt, in bytes.
const maxPrompt = 64 << 20

// encode reads the prompts and converts them to ids.
func (t *Texts) encode(f *PromptFlags) error {
	for _, p := range f.Prompts {
		if p == "-" {
			b, err := io.ReadAll(os.Stdin)
			if err != nil {
				return fmt.Errorf("cannot read the prompt from stdin: %w", err)
			}
			p = strings.TrimSuffix(string(b), "\n")
		}
		t.Prompts = append(t.Prompts, p)
	}
	if f.PromptFile != "" {
		b, err := regular.ReadFile(f.PromptFile, maxPrompt)
		if err != nil {
			return fmt.Errorf("cannot read the prompt: %w", err)
		}
		t.Prompts = append(t.Prompts, strings.TrimSuffix(string(b), "\n"))
	}
	for i, p := range t.Prompts {
		special := true
		if f.Chat {
			var err error
			if p, err = f.render(t, p); err != nil {
				return err
			}
			special = false // the template writes them
		}
		ids := t.Tokenizer.Encode(p, special)
		if len(ids) == 0 {
			return fmt.Errorf("prompt %d has no tokens", i)
		}
		t.IDs = append(t.IDs, ids)
	}
	return nil
}

// render puts a prompt into the chat template: the one of --template, or the one of the tokenizer's folder. Either may
// use the folder's special tokens.
func (f *PromptFlags) render(t *Texts, prompt string) (string, error) {
	if t.template == nil {
		own, err := chat.Read(filepath.Dir(t.Path))
		if t.template = own; f.Template != "" {
			if t.template, err = chat.Read(f.Template); err == nil && own != nil && len(t.template.Tokens) == 0 {
				t.template.Tokens = own.Tokens
			}
		}
		if err != nil {
			return "", fmt.Errorf("%w\n(use --template FILE to name the chat template)", err)
		}
	}
	var messages []chat.Message
	if f.System != "" {
		messages = append(messages, chat.Message{Role: "system", Content: f.System})
	}
	messages = append(messages, chat.Message{Role: "user", Content: prompt})
	return t.template.Render(messages, chat.Options{AddGenerationPrompt: true})
}

// ParseIDs parses token ids separated by commas. flag is named in errors.
func ParseIDs(flag, list string) ([]int64, error) {
	var ids []int64
	for _, s := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, err := strconv.ParseInt(s, 10, 64)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("--%s %q: write numbers of 0 or more, separated by commas", flag, list)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("--%s is empty", flag)
	}
	return ids, nil
}

package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The files of a model folder, as transformers names them.
const (
	templateFile    = "chat_template.jinja"
	templatesFolder = "additional_chat_templates"
	configFile      = "tokenizer_config.json"
)

// Read reads a template from a chat_template.jinja, from a tokenizer_config.json (chat_template, a string or a list of
// named ones; bos_token and the like, strings or objects with a content), or from a folder that has one or both: the
// template of chat_template.jinja is then the one, as in transformers, and the tokens are those of the other.
func Read(path string) (*Template, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("chat template: %w", err)
	case info.IsDir():
		return readFolder(path)
	case !strings.HasSuffix(path, ".json"):
		return readSource(path)
	}
	t, err := readConfig(path)
	if err == nil && t.empty() {
		err = fmt.Errorf("chat template: %s has no chat_template", path)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// empty reports whether there are only tokens.
func (t *Template) empty() bool { return t.program.tokens == nil && t.named == nil }

func readSource(path string) (*Template, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t, err := Parse(string(source))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readFolder(folder string) (*Template, error) {
	t, err := readConfig(filepath.Join(folder, configFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tokens := t.Tokens
	own, err := readSource(filepath.Join(folder, templateFile))
	if err == nil {
		t = own
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	more, err := filepath.Glob(filepath.Join(folder, templatesFolder, "*.jinja"))
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	if len(more) > 0 {
		named := map[string]*Template{}
		if !t.empty() {
			named["default"] = t
		}
		for _, path := range more {
			if named[strings.TrimSuffix(filepath.Base(path), ".jinja")], err = readSource(path); err != nil {
				return nil, err
			}
		}
		t = &Template{named: named}
	}
	if t.empty() {
		return nil, fmt.Errorf("chat template: %s has no %s, and no %s with a chat_template",
			folder, templateFile, configFile)
	}
	t.Tokens = tokens
	return t, nil
}

// readConfig reads tokenizer_config.json; the template is empty where it has none.
func readConfig(path string) (*Template, error) {
	t := &Template{}
	data, err := os.ReadFile(path)
	if err != nil {
		return t, fmt.Errorf("chat template: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	var source string
	var list []struct{ Name, Template string }
	switch raw := fields["chat_template"]; {
	case raw == nil || string(raw) == "null":
	case json.Unmarshal(raw, &source) == nil:
		if t, err = Parse(source); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	case json.Unmarshal(raw, &list) != nil || len(list) == 0:
		return t, fmt.Errorf("%s: chat_template is neither a string nor a list of {name, template}", path)
	}
	for _, one := range list {
		if t.named == nil {
			t.named = map[string]*Template{}
		}
		if t.named[one.Name], err = Parse(one.Template); err != nil {
			return t, fmt.Errorf("%s: template %q: %w", path, one.Name, err)
		}
	}
	t.Tokens = map[string]string{}
	for name, raw := range fields {
		var token struct{ Content *string }
		if text := &source; strings.HasSuffix(name, "_token") && string(raw) != "null" {
			if json.Unmarshal(raw, text) == nil {
				t.Tokens[name] = *text
			} else if json.Unmarshal(raw, &token) == nil && token.Content != nil {
				t.Tokens[name] = *token.Content
			}
		}
	}
	return t, nil
}

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
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	if info.IsDir() {
		return readFolder(path)
	}
	if strings.HasSuffix(path, ".json") {
		t, tokens, err := readConfig(path)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("chat template: %s has no chat_template", path)
		}
		t.Tokens = tokens
		return t, nil
	}
	return readSource(path)
}

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
	t, tokens, err := readConfig(filepath.Join(folder, configFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	own, err := readSource(filepath.Join(folder, templateFile))
	switch {
	case err == nil:
		t = own
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	more, err := filepath.Glob(filepath.Join(folder, templatesFolder, "*.jinja"))
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	named := map[string]*Template{}
	for _, path := range more {
		if named[strings.TrimSuffix(filepath.Base(path), ".jinja")], err = readSource(path); err != nil {
			return nil, err
		}
	}
	if len(named) > 0 {
		if t != nil {
			named["default"] = t
		}
		t = &Template{named: named}
	}
	if t == nil {
		return nil, fmt.Errorf("chat template: %s has no %s, and no %s with a chat_template", folder, templateFile,
			configFile)
	}
	t.Tokens = tokens
	return t, nil
}

// readConfig reads tokenizer_config.json; the template is nil where it has none.
func readConfig(path string) (*Template, map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("chat template: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	tokens := map[string]string{}
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var token struct{ Content *string }
		var text *string
		if json.Unmarshal(raw, &text) == nil && text != nil {
			tokens[name] = *text
		} else if json.Unmarshal(raw, &token) == nil && token.Content != nil {
			tokens[name] = *token.Content
		}
	}
	raw := fields["chat_template"]
	if raw == nil || string(raw) == "null" {
		return nil, tokens, nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		t, err := Parse(source)
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return t, tokens, err
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, nil, fmt.Errorf("%s: chat_template is neither a string nor a list of {name, template}", path)
	}
	named := map[string]*Template{}
	for _, one := range list {
		if named[one.Name], err = Parse(one.Template); err != nil {
			return nil, nil, fmt.Errorf("%s: template %q: %w", path, one.Name, err)
		}
	}
	return &Template{named: named}, tokens, nil
}

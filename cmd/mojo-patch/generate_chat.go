package main

import (
	"fmt"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/llm/chat"
)

// render puts a prompt into the chat template: that of --template, or of the tokenizer's folder, whose tokens it may
// name.
func (f *generateFlags) render(t *texts, prompt string) (string, error) {
	if t.template == nil {
		own, err := chat.Read(filepath.Dir(t.path))
		if t.template = own; f.template != "" {
			if t.template, err = chat.Read(f.template); err == nil && own != nil && len(t.template.Tokens) == 0 {
				t.template.Tokens = own.Tokens
			}
		}
		if err != nil {
			return "", fmt.Errorf("%w\n(--template FILE names the chat template)", err)
		}
	}
	var messages []chat.Message
	if f.system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: f.system})
	}
	messages = append(messages, chat.Message{Role: "user", Content: prompt})
	return t.template.Render(messages, chat.Options{AddGenerationPrompt: true})
}

package chat

import (
	"errors"
	"slices"
	"strings"
)

// finalTag is put behind the last message's text, and found again in the prompt: transformers' way, and its tag.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// openFinalMessage puts the tag behind the text of the last message, or behind the last text among its parts, and
// returns the text.
func openFinalMessage(vars map[string]any, opts Options) (string, error) {
	messages := vars["messages"].(*sequence).items
	switch {
	case opts.AddGenerationPrompt:
		return "", errors.New("the last message cannot be continued where a generation prompt is added")
	case len(messages) == 0:
		return "", errors.New("there is no last message to continue")
	}
	last := messages[len(messages)-1].(*dict)
	if text, ok := last.get("content").(string); ok {
		last.set("content", text+finalTag)
		return text, nil
	}
	parts, _ := indexed(last.get("content"))
	for _, v := range slices.Backward(parts) {
		if part, ok := v.(*dict); ok {
			if text, ok := part.get("text").(string); ok {
				part.set("text", text+finalTag)
				return text, nil
			}
		}
	}
	return "", errors.New("the last message has no text to continue")
}

// cutFinalMessage ends the prompt where the tag behind text is.
func cutFinalMessage(prompt, text string) (string, error) {
	at := strings.LastIndex(prompt, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(prompt, strings.TrimFunc(text, isSpace)) {
		return "", errors.New("the template changes or leaves out the text of the last message: it cannot be continued")
	}
	if strings.HasPrefix(prompt[at:], finalTag) {
		return prompt[:at], nil
	}
	return strings.TrimRightFunc(prompt[:at], isSpace), nil // the template trims messages
}

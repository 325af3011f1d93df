package chat

import (
	"errors"
	"slices"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// finalTag is put behind the last message's text, and found again in the prompt: transformers' way, and its tag.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// finalText is the variable that keeps the last message's text; no template can name it.
const finalText = "final message"

// openFinalMessage puts the tag behind the text of the last message, or behind the last text among its parts.
func openFinalMessage(vars map[string]any, opts Options) error {
	if opts.AddGenerationPrompt {
		return errors.New("the last message cannot be continued where a generation prompt is added")
	}
	messages, _ := vars["messages"].(value.Value).AsSlice()
	if len(messages) == 0 {
		return errors.New("there is no last message to continue")
	}
	last, _ := asDict(messages[len(messages)-1])
	content := last.GetAttr("content")
	if text, ok := content.AsString(); ok {
		vars[finalText] = text
		last.setString("content", value.FromString(text+finalTag))
		return nil
	}
	parts, _ := content.AsSlice()
	for _, v := range slices.Backward(parts) {
		part, ok := asDict(v)
		if !ok {
			continue
		}
		if text, ok := part.GetAttr("text").AsString(); ok {
			vars[finalText] = text
			part.setString("text", value.FromString(text+finalTag))
			return nil
		}
	}
	return errors.New("the last message has no text to continue")
}

// cutFinalMessage ends the prompt where the tag is.
func cutFinalMessage(out string, vars map[string]any) (string, error) {
	text, _ := vars[finalText].(string)
	at := strings.LastIndex(out, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(out, strings.TrimFunc(text, isSpace)) {
		return "", errors.New("the template changes or leaves out the text of the last message: it cannot be continued")
	}
	if strings.HasPrefix(out[at:], finalTag) {
		return out[:at], nil
	}
	return strings.TrimRightFunc(out[:at], isSpace), nil // the template trims messages
}

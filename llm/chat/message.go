package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strings"
)

// Message is one message of a conversation.
type Message struct {
	// Role is system, user, assistant, tool, or another role that the template knows.
	Role string
	// Content is the text.
	Content string
	// Fields is a JSON object of further fields (tool_calls, reasoning_content, name, …), or nil. A content in it, a
	// list of parts or null, replaces Content. With a role in it, Fields is the whole message.
	Fields json.RawMessage
}

// value returns the dict that templates see.
func (m Message) value(what string) *dict {
	d, fields := newDict(nil, nil), newDict(nil, nil)
	if m.Fields != nil {
		fields, _ = decode(what+": fields", m.Fields).(*dict)
		require(fields != nil, "%s: fields: not a JSON object", what)
	}
	// Templates use several names for a message's reasoning; set all, like transformers' _alias_reasoning_fields.
	reasoning := cmp.Or(fields.values["reasoning_content"], fields.values["thinking"], fields.values["reasoning"])
	if reasoning != nil {
		d.set("thinking", reasoning)
	}
	if _, whole := fields.lookup("role"); !whole {
		d.set("role", m.Role)
		d.set("content", m.Content)
	}
	for _, key := range fields.keys {
		d.set(key, fields.values[key])
	}
	if reasoning != nil {
		d.set("reasoning_content", reasoning)
	}
	return d
}

// decode reads JSON like Python's json.loads: objects keep the order of their keys, and integers are not floats.
func decode(what string, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v := decodeValue(what, d, 0)
	_, err := d.Token()
	require(err == io.EOF, "%s: there is more than one JSON value", what)
	return v
}

func decodeValue(what string, d *json.Decoder, depth int) any {
	require(depth <= maxDepth, "%s: JSON nested more than %d deep", what, maxDepth)
	next := func() json.Token {
		t, err := d.Token()
		require(err == nil, "%s: JSON: %w", what, err)
		return t
	}
	switch t := next().(type) {
	case json.Number:
		return parseNumber(t.String())
	case json.Delim:
		var keys, values []any
		for d.More() {
			if t == '{' {
				keys = append(keys, next())
			}
			values = append(values, decodeValue(what, d, depth+1))
		}
		if next(); t == '{' {
			return newDict(keys, values)
		}
		return newList(values...)
	default:
		return t // nil, a bool or a string
	}
}

// finalTag marks the end of the last message's text in the prompt. Method and tag are transformers'.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// openFinalMessage appends the tag to the text of the last message, and returns the text.
func openFinalMessage(messages []any, opts Options) string {
	require(!opts.AddGenerationPrompt, "cannot continue the last message and also add a generation prompt")
	require(len(messages) > 0, "the list of messages is empty, so the last message cannot be continued")
	last := messages[len(messages)-1].(*dict)
	text, ok := last.values["content"].(string)
	require(ok, "the content of the last message is not text, so it cannot be continued")
	last.set("content", text+finalTag)
	return text
}

// cutFinalMessage cuts the prompt at the tag after text.
func cutFinalMessage(prompt, text string) string {
	at := strings.LastIndex(prompt, strings.TrimSpace(finalTag))
	require(at >= 0 && strings.Contains(prompt, strings.TrimFunc(text, isSpace)),
		"the template changes or leaves out the text of the last message: it cannot be continued")
	if strings.HasPrefix(prompt[at:], finalTag) {
		return prompt[:at]
	}
	return strings.TrimRightFunc(prompt[:at], isSpace) // the template trims messages
}

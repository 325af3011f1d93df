package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// Message is one message of a conversation.
type Message struct {
	// Role is system, user, assistant, tool, or what else the template knows.
	Role string
	// Content is the text.
	Content string
	// Fields is a JSON object of what else the template reads (tool_calls, reasoning_content, name, …), or nil. A
	// content in it, as a list of parts or null, takes the place of Content; a role in it makes it the whole message.
	Fields json.RawMessage
}

// UnmarshalJSON reads a message as transformers has it: an object with a role.
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := decode(data)
	if err != nil {
		return err
	}
	d, ok := asDict(v)
	if !ok {
		return fmt.Errorf("a message is a JSON %s, expected an object", typeName(v))
	}
	role, ok := d.GetAttr("role").AsString()
	if !ok {
		return errors.New("a message has no role, or one that is no string")
	}
	content, isText := d.GetAttr("content").AsString()
	*m = Message{Role: role, Content: content}
	if !isText || len(d.keys) > 2 {
		m.Fields = append(json.RawMessage(nil), data...)
	}
	return nil
}

// value returns the dict that templates see.
func (m Message) value() (value.Value, error) {
	d := newDict()
	if m.Fields != nil {
		v, err := decode(m.Fields)
		if err != nil {
			return v, fmt.Errorf("fields: %w", err)
		}
		fields, ok := asDict(v)
		if !ok {
			return v, fmt.Errorf("fields: a JSON %s, expected an object", typeName(v))
		}
		if _, whole := fields.get(value.FromString("role")); whole {
			return aliasReasoning(fields), nil
		}
		d.setString("role", value.FromString(m.Role))
		d.setString("content", value.FromString(m.Content))
		for _, key := range fields.keys {
			item, _ := fields.get(key)
			_ = d.set(key, item) // a string
		}
		return aliasReasoning(d), nil
	}
	d.setString("role", value.FromString(m.Role))
	d.setString("content", value.FromString(m.Content))
	return value.FromObject(d), nil
}

// aliasReasoning returns the reasoning of a message under each name that templates have for it, as transformers'
// _alias_reasoning_fields.
func aliasReasoning(d *dict) value.Value {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		v := d.GetAttr(name)
		if v.IsUndefined() || v.IsNone() {
			continue
		}
		out := newDict()
		out.setString("thinking", v)
		for _, key := range d.keys {
			item, _ := d.get(key)
			_ = out.set(key, item) // it was a key
		}
		out.setString("reasoning_content", v)
		return value.FromObject(out)
	}
	return value.FromObject(d)
}

package chat

import (
	"encoding/json"
	"errors"
	"fmt"
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
	d, err := decodeObject(data)
	if err != nil {
		return fmt.Errorf("a message is %w", err)
	}
	role, ok := d.get("role").(string)
	if !ok {
		return errors.New("a message has no role, or one that is no string")
	}
	content, isText := d.get("content").(string)
	*m = Message{Role: role, Content: content}
	if !isText || d.size() > 2 {
		m.Fields = append(json.RawMessage(nil), data...)
	}
	return nil
}

func decodeObject(data []byte) (*dict, error) {
	v, err := decode(data)
	d, ok := v.(*dict)
	if err == nil && !ok {
		err = fmt.Errorf("a JSON %s, expected an object", typeName(v))
	}
	return d, err
}

// value returns the dict that templates see.
func (m Message) value() (any, error) {
	d := newDict()
	d.set("role", m.Role)
	d.set("content", m.Content)
	if m.Fields != nil {
		fields, err := decodeObject(m.Fields)
		if err != nil {
			return nil, fmt.Errorf("fields: %w", err)
		}
		if _, whole := fields.lookup("role"); whole {
			d = fields
		} else {
			d.update(fields)
		}
	}
	// The reasoning of a message has each name that templates have for it: transformers' _alias_reasoning_fields.
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if v := d.get(name); !isUndefined(v) && v != nil {
			out := newDict()
			out.set("thinking", v)
			out.update(d)
			out.set("reasoning_content", v)
			return out, nil
		}
	}
	return d, nil
}

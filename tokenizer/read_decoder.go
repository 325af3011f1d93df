package tokenizer

import "encoding/json"

func readDecoder(raw json.RawMessage, where string) ([]func() step, error) {
	if absent(raw) {
		return []func() step{func() step { return &spaceStep{} }}, nil
	}
	kind, err := kindOf(raw, where)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel":
		return []func() step{func() step { return &byteLevelStep{} }}, nil
	}
	return nil, unsupported(where, kind, "ByteLevel")
}

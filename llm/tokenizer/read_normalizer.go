package tokenizer

import (
	"encoding/json"
	"fmt"
)

func readNormalizer(raw json.RawMessage, where string) (normalizer, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := kindOf(raw, where)
	if err != nil {
		return nil, err
	}
	if form, ok := forms[kind]; ok {
		return form, nil
	}
	switch kind {
	case "Sequence":
		var f struct {
			List []json.RawMessage `json:"normalizers"`
		}
		if err := decode(raw, where, &f); err != nil {
			return nil, err
		}
		var all []normalizer
		for i, r := range f.List {
			at := element(where, "normalizers", i)
			n, err := readNormalizer(r, at)
			if err != nil {
				return nil, err
			}
			if n == nil {
				return nil, fmt.Errorf("%s: null", at)
			}
			all = append(all, n)
		}
		return func(s string) string {
			for _, n := range all {
				s = n(s)
			}
			return s
		}, nil
	case "ByteLevel":
		return toByteChars, nil
	case "Lowercase":
		return lowercase, nil
	case "Prepend":
		var f struct {
			Prepend string `json:"prepend"`
		}
		err := decode(raw, where, &f)
		return func(s string) string {
			if s == "" {
				return s
			}
			return f.Prepend + s
		}, err
	case "Replace":
		return readReplace(raw, where)
	}
	return nil, unsupported(where, kind, "NFC", "NFD", "NFKC", "NFKD", "ByteLevel", "Lowercase", "Prepend", "Replace",
		"Sequence")
}

// readReplace reads the normalizer Replace, or the decoder, which has the same fields.
func readReplace(raw json.RawMessage, where string) (normalizer, error) {
	var f struct {
		Pattern json.RawMessage `json:"pattern"`
		Content string          `json:"content"`
	}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	p, err := readPattern(f.Pattern, where+".pattern")
	if err != nil {
		return nil, err
	}
	return replacer(p, f.Content), nil
}

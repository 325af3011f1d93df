package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

func readPreTokenizer(raw json.RawMessage, where string) (preTokenizer, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := kindOf(raw, where)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		return readSequence(raw, where)
	case "ByteLevel":
		return readByteLevel(raw, where)
	case "Digits":
		var f struct {
			Individual bool `json:"individual_digits"`
		}
		err := decode(raw, where, &f)
		if f.Individual {
			return splitter{find: digits{}, behavior: behaviors["Isolated"]}, err
		}
		return splitter{find: digits{}, behavior: contiguous}, err
	case "Split":
		return readSplit(raw, where)
	}
	return nil, unsupported(where, kind, "ByteLevel", "Digits", "Split", "Sequence")
}

func readSequence(raw json.RawMessage, where string) (preTokenizer, error) {
	var f struct {
		List []json.RawMessage `json:"pretokenizers"`
	}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	var all sequence
	for i, r := range f.List {
		at := element(where, "pretokenizers", i)
		p, err := readPreTokenizer(r, at)
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, fmt.Errorf("%s: null", at)
		}
		all = append(all, p)
	}
	return all, nil
}

func readByteLevel(raw json.RawMessage, where string) (preTokenizer, error) {
	f := struct {
		AddPrefixSpace bool `json:"add_prefix_space"`
		UseRegex       bool `json:"use_regex"`
	}{UseRegex: true}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	b := byteLevel{prefixSpace: f.AddPrefixSpace}
	if f.UseRegex {
		var err error
		if b.pattern, err = newPattern(gpt2); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return b, nil
}

func readSplit(raw json.RawMessage, where string) (preTokenizer, error) {
	var f struct {
		Pattern  json.RawMessage `json:"pattern"`
		Behavior string          `json:"behavior"`
		Invert   bool            `json:"invert"`
	}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	find, err := readPattern(f.Pattern, where+".pattern")
	if err != nil {
		return nil, err
	}
	do, ok := behaviors[f.Behavior]
	if !ok {
		known := slices.Sorted(maps.Keys(behaviors))
		return nil, fmt.Errorf("%s: behavior %q is not supported, only %s", where, f.Behavior,
			strings.Join(known, ", "))
	}
	return splitter{find: find, behavior: do, invert: f.Invert}, nil
}

// readPattern reads {"String": …}, a literal, or {"Regex": …}.
func readPattern(raw json.RawMessage, where string) (*pattern, error) {
	var f struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	source := ""
	switch {
	case f.String != nil:
		source = regexp.QuoteMeta(*f.String)
	case f.Regex != nil:
		source = *f.Regex
	default:
		return nil, fmt.Errorf("%s: neither String nor Regex", where)
	}
	p, err := newPattern(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return p, nil
}

package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

func readDecoder(raw json.RawMessage, where string) ([]func() step, error) {
	if absent(raw) {
		return []func() step{func() step { return &spaceStep{} }}, nil
	}
	var chain decoderChain
	if err := chain.read(raw, where); err != nil {
		return nil, err
	}
	return chain.steps, nil
}

// decoderChain collects decoders. A stream returns text as soon as it is certain, so decoders after ByteLevel or Fuse,
// which join all tokens into one text, must work on parts of it. Fuse does, and so does one Strip at the start.
type decoderChain struct {
	steps   []func() step
	joined  string // the kind that joined all tokens, if any
	started bool   // a Strip after it was found
}

func (c *decoderChain) read(raw json.RawMessage, where string) error {
	kind, err := kindOf(raw, where)
	if err != nil {
		return err
	}
	if c.joined != "" && kind != "Fuse" && kind != "Sequence" && (kind != "Strip" || c.started) {
		return fmt.Errorf("%s: %s after %s is not supported", where, kind, c.joined)
	}
	switch kind {
	case "Sequence":
		var f struct {
			List []json.RawMessage `json:"decoders"`
		}
		if err := decode(raw, where, &f); err != nil {
			return err
		}
		for i, r := range f.List {
			if err := c.read(r, element(where, "decoders", i)); err != nil {
				return err
			}
		}
	case "ByteLevel":
		c.joined = kind
		c.steps = append(c.steps, func() step { return &byteLevelStep{} })
	case "Fuse":
		c.joined = kind
	case "ByteFallback":
		c.steps = append(c.steps, func() step { return &byteFallbackStep{} })
	case "Replace":
		replace, err := readReplace(raw, where)
		if err != nil {
			return err
		}
		c.steps = append(c.steps, func() step { return replaceStep(replace) })
	case "Strip":
		return c.readStrip(raw, where)
	default:
		return unsupported(where, kind, "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Sequence")
	}
	return nil
}

func (c *decoderChain) readStrip(raw json.RawMessage, where string) error {
	var f struct {
		Content     string `json:"content"`
		Start, Stop int
	}
	if err := decode(raw, where, &f); err != nil {
		return err
	}
	char, n := utf8.DecodeRuneInString(f.Content)
	switch {
	case n == 0 || n != len(f.Content):
		return fmt.Errorf("%s: content %q is not one character", where, f.Content)
	case f.Stop != 0:
		return fmt.Errorf("%s: stop %d is not supported, only 0", where, f.Stop)
	}
	all := c.joined != ""
	c.started = c.started || all
	c.steps = append(c.steps, func() step { return &stripStep{char: char, count: f.Start, left: f.Start, all: all} })
	return nil
}

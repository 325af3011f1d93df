package tokenizer

import (
	"encoding/json"
	"fmt"
)

// piece is one part of the post-processor's output: the text's ids, or special tokens.
type piece struct {
	text bool
	ids  []int64
}

// plain is only the text.
var plain = []piece{{text: true}}

func readPostProcessor(raw json.RawMessage, where string) ([]piece, error) {
	if absent(raw) {
		return plain, nil
	}
	kind, err := kindOf(raw, where)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel": // changes only offsets
		return plain, nil
	case "RobertaProcessing", "BertProcessing":
		return readClsSep(raw, where)
	case "TemplateProcessing":
		return readTemplate(raw, where)
	case "Sequence":
		var f struct {
			List []json.RawMessage `json:"processors"`
		}
		if err := decode(raw, where, &f); err != nil {
			return nil, err
		}
		all := plain
		for i, r := range f.List {
			at := element(where, "processors", i)
			p, err := readPostProcessor(r, at)
			if err != nil {
				return nil, err
			}
			if len(all) > 1 && len(p) > 1 {
				return nil, fmt.Errorf("%s: a second processor that adds tokens is not supported", at)
			}
			if len(p) > 1 {
				all = p
			}
		}
		return all, nil
	}
	return nil, unsupported(where, kind, "ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing",
		"Sequence")
}

// readTemplate reads the TemplateProcessing of a single sequence; pairs of sequences are not supported.
func readTemplate(raw json.RawMessage, where string) ([]piece, error) {
	type part struct {
		ID string `json:"id"`
	}
	var f struct {
		Single []struct {
			Sequence     *part `json:"Sequence"`
			SpecialToken *part `json:"SpecialToken"`
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int64 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	var out []piece
	for i, p := range f.Single {
		at := element(where, "single", i)
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			out = append(out, piece{text: true})
		case p.Sequence != nil:
			return nil, fmt.Errorf("%s: sequence %q in the template of a single sequence, expected A", at,
				p.Sequence.ID)
		case p.SpecialToken != nil:
			s, ok := f.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("%s: %q is not among special_tokens", at, p.SpecialToken.ID)
			}
			out = append(out, piece{ids: s.IDs})
		default:
			return nil, fmt.Errorf("%s: neither Sequence nor SpecialToken", at)
		}
	}
	return out, nil
}

// readClsSep reads the processors that put cls before a sequence and sep after it. Each is a token and its id.
func readClsSep(raw json.RawMessage, where string) ([]piece, error) {
	var f struct{ Cls, Sep []json.RawMessage }
	if err := decode(raw, where, &f); err != nil {
		return nil, err
	}
	var ids [2]int64
	for i, token := range [][]json.RawMessage{f.Cls, f.Sep} {
		if len(token) != 2 {
			return nil, fmt.Errorf("%s: cls and sep must each be a token and its id", where)
		}
		if err := decode(token[1], where, &ids[i]); err != nil {
			return nil, err
		}
	}
	return []piece{{ids: ids[:1]}, {text: true}, {ids: ids[1:]}}, nil
}

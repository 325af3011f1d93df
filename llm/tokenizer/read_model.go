package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// modelSection is the model section of a BPE tokenizer.
type modelSection struct {
	Dropout                 *float64          `json:"dropout"`
	UnkToken                *string           `json:"unk_token"`
	ContinuingSubwordPrefix *string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string           `json:"end_of_word_suffix"`
	FuseUnk                 bool              `json:"fuse_unk"`
	ByteFallback            bool              `json:"byte_fallback"`
	IgnoreMerges            bool              `json:"ignore_merges"`
	Vocab                   map[string]uint32 `json:"vocab"`
	Merges                  json.RawMessage   `json:"merges"`
}

func readModel(raw json.RawMessage) (*bpe, error) {
	// Files from before the library had other models have no type.
	var k struct {
		Type string `json:"type"`
	}
	if err := decode(raw, "model", &k); err != nil {
		return nil, err
	}
	if k.Type != "" && k.Type != "BPE" {
		return nil, unsupported("model", k.Type, "BPE")
	}
	var f modelSection
	if err := decode(raw, "model", &f); err != nil {
		return nil, err
	}
	switch {
	case f.Vocab == nil:
		return nil, fmt.Errorf("model: no vocab")
	case f.Merges == nil:
		return nil, fmt.Errorf("model: no merges")
	case f.Dropout != nil && *f.Dropout != 0:
		return nil, fmt.Errorf("model: dropout %v is not supported: ids would be random", *f.Dropout)
	case f.ContinuingSubwordPrefix != nil && *f.ContinuingSubwordPrefix != "":
		return nil, fmt.Errorf("model: continuing_subword_prefix %q is not supported", *f.ContinuingSubwordPrefix)
	case f.EndOfWordSuffix != nil && *f.EndOfWordSuffix != "":
		return nil, fmt.Errorf("model: end_of_word_suffix %q is not supported", *f.EndOfWordSuffix)
	}
	m := &bpe{vocab: f.Vocab, tokens: make(map[uint32]string, len(f.Vocab)), fuseUnknown: f.FuseUnk,
		ignoreMerges: f.IgnoreMerges,
		words:        map[string][]int64{}}
	for token, id := range f.Vocab {
		if other, ok := m.tokens[id]; ok {
			return nil, fmt.Errorf("model.vocab: %q and %q have the same id %d", min(token, other), max(token, other),
				id)
		}
		m.tokens[id] = token
	}
	if f.UnkToken != nil {
		id, ok := f.Vocab[*f.UnkToken]
		if !ok {
			return nil, fmt.Errorf("model: unk_token %q is not in vocab", *f.UnkToken)
		}
		m.unknown = &id
	}
	if f.ByteFallback {
		m.byteFallback = newByteFallback(f.Vocab)
	}
	pairs, err := readMerges(f.Merges)
	if err != nil {
		return nil, err
	}
	m.merges = make(map[uint64]merge, len(pairs))
	for rank, p := range pairs {
		a, b, both := p[0], p[1], p[0]+p[1]
		for _, token := range []string{a, b, both} {
			if _, ok := f.Vocab[token]; !ok {
				return nil, fmt.Errorf("model.merges[%d]: %q is not in vocab", rank, token)
			}
		}
		m.merges[pair(f.Vocab[a], f.Vocab[b])] = merge{uint32(rank), f.Vocab[both]}
	}
	return m, nil
}

// readMerges reads pairs, or strings "a b" in files from before 2024, which may start with the version line of a
// merges.txt.
func readMerges(raw json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	if json.Unmarshal(raw, &pairs) != nil {
		var lines []string
		if err := decode(raw, "model.merges", &lines); err != nil {
			return nil, err
		}
		pairs = pairs[:0]
		for _, line := range lines {
			if !strings.HasPrefix(line, "#version") {
				pairs = append(pairs, strings.Split(line, " "))
			}
		}
	}
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("model.merges[%d]: %d tokens %q, expected two", i, len(p), p)
		}
		out[i] = [2]string{p[0], p[1]}
	}
	return out, nil
}

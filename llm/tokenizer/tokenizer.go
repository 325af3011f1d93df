package tokenizer

import "strings"

// Tokenizer encodes and decodes text. It does not change after [Read], except for a cache of words, and is safe for
// concurrent use.
type Tokenizer struct {
	model     *bpe
	added     *addedTokens
	normalize normalizer   // nil: text stays unchanged
	split     preTokenizer // nil: one word
	template  []piece      // the post-processor's tokens around the ids
	decoder   []func() step
}

// Encode returns the ids of text. addSpecial adds the post-processor's tokens, such as beginning and end of sequence.
// Special tokens in the text become their ids either way.
//
// A character without a token has no id if the model has no unknown token, as in Hugging Face's library. If a pattern
// backtracks for longer than [MatchTimeout], the rest of its piece of text stays one word.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int64 {
	ids := []int64{}
	for _, p := range t.template {
		switch {
		case p.text:
			ids = t.encode(ids, valid(text))
		case addSpecial:
			ids = append(ids, p.ids...)
		}
	}
	return ids
}

func (t *Tokenizer) encode(ids []int64, text string) []int64 {
	for _, raw := range t.added.raw.split(text) {
		if raw.token {
			ids = append(ids, raw.id)
			continue
		}
		s := raw.text
		if t.normalize != nil {
			s = t.normalize(s)
		}
		for _, part := range t.added.normalized.split(s) {
			if part.token {
				ids = append(ids, part.id)
				continue
			}
			ids = t.encodeWords(ids, part.text)
		}
	}
	return ids
}

func (t *Tokenizer) encodeWords(ids []int64, text string) []int64 {
	if text == "" {
		return ids
	}
	words := []string{text}
	if t.split != nil {
		words = t.split.split(words)
	}
	for _, w := range words {
		ids = t.model.encode(ids, w)
	}
	return ids
}

// Decode returns the text of ids. skipSpecial leaves out special tokens. Unknown ids have no text, and bytes that are
// not UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int64, skipSpecial bool) string {
	s := t.Stream(skipSpecial)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Add(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// ID returns the id of a token in the file's spelling: byte-level tokens use their alphabet (Ġ for a space).
func (t *Tokenizer) ID(token string) (int64, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	id, ok := t.model.vocab[token]
	return int64(id), ok
}

// Token returns the token of an id in the file's spelling.
func (t *Tokenizer) Token(id int64) (string, bool) {
	if a, ok := t.added.tokens[id]; ok {
		return a.Content, true
	}
	return t.model.token(id)
}

// Size returns the number of tokens including added ones. Ids may be larger if the file skips some.
func (t *Tokenizer) Size() int { return len(t.model.vocab) + t.added.beyondModel }

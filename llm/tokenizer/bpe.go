package tokenizer

import (
	"fmt"
	"sync"
)

// bpe is the model: a vocabulary, and ranked merges of two tokens into one.
type bpe struct {
	vocab        map[string]uint32
	tokens       map[uint32]string
	merges       map[uint64]merge // by pair
	unknown      *uint32
	fuseUnknown  bool
	byteFallback *[256]int64 // -1 if the vocabulary lacks <0xNN>
	ignoreMerges bool

	mu    sync.RWMutex
	words map[string][]int64
}

// merge is the result of merging two tokens. Smaller ranks merge first.
type merge struct{ rank, token uint32 }

// The limits of the cache, the same as in tokenizers.
const (
	cachedWords  = 10_000
	cachedLength = 256
)

func pair(a, b uint32) uint64 { return uint64(a)<<32 | uint64(b) }

// token returns the token with an id.
func (m *bpe) token(id int64) (string, bool) {
	if id < 0 || id > int64(^uint32(0)) {
		return "", false
	}
	s, ok := m.tokens[uint32(id)]
	return s, ok
}

// encode appends the ids of one word.
func (m *bpe) encode(ids []int64, word string) []int64 {
	if word == "" {
		return ids
	}
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(ids, int64(id))
		}
	}
	m.mu.RLock()
	known, ok := m.words[word]
	m.mu.RUnlock()
	if ok {
		return append(ids, known...)
	}
	symbols := mergeAll(m.symbols(word), m.merges)
	start := len(ids)
	for _, s := range symbols {
		ids = append(ids, int64(s))
	}
	if len(word) < cachedLength {
		m.mu.Lock()
		if len(m.words) < cachedWords {
			m.words[word] = append([]int64(nil), ids[start:]...)
		}
		m.mu.Unlock()
	}
	return ids
}

// symbols returns the tokens of the characters of a word: a character's token, else the tokens of its bytes, else the
// unknown token.
//
// An unknown token is held back until the next character with a token: byte tokens overtake it, as in tokenizers.
func (m *bpe) symbols(word string) []uint32 {
	out := make([]uint32, 0, len(word))
	waiting := false
	for i, r := range word {
		c := word[i : i+len(string(r))]
		if id, ok := m.vocab[c]; ok {
			if waiting {
				out, waiting = append(out, *m.unknown), false
			}
			out = append(out, id)
			continue
		}
		if bytes, ok := m.bytes(c); ok {
			out = append(out, bytes...)
			continue
		}
		if m.unknown == nil {
			continue
		}
		if waiting && !m.fuseUnknown {
			out = append(out, *m.unknown)
		}
		waiting = true
	}
	if waiting {
		out = append(out, *m.unknown)
	}
	return out
}

// bytes returns the tokens <0xNN> of a character's bytes, if the vocabulary has them all.
func (m *bpe) bytes(c string) ([]uint32, bool) {
	if m.byteFallback == nil {
		return nil, false
	}
	var out []uint32
	for i := range len(c) {
		id := m.byteFallback[c[i]]
		if id < 0 {
			return nil, false
		}
		out = append(out, uint32(id))
	}
	return out, true
}

// newByteFallback finds the tokens of single bytes.
func newByteFallback(vocab map[string]uint32) *[256]int64 {
	var ids [256]int64
	for b := range ids {
		ids[b] = -1
		if id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			ids[b] = int64(id)
		}
	}
	return &ids
}

package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// addedToken is one entry of added_tokens.
type addedToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedTokens are the tokens that are cut out of the text before the model sees it.
type addedTokens struct {
	ids             map[string]int64
	tokens          map[int64]addedToken
	special         map[string]bool
	decoded         map[int64]string // what the decoder gets, where normalizing changed the content
	raw, normalized matcher          // those matched before and after normalization
	beyondModel     int              // how many the model's vocabulary does not have
}

// newAddedTokens numbers the tokens as tokenizers does: those of the model's vocabulary have its ids, others follow it
// in the order of the file, whatever ids the file has for them.
func newAddedTokens(list []addedToken, model *bpe, normalize normalizer) (*addedTokens, error) {
	a := &addedTokens{ids: map[string]int64{}, tokens: map[int64]addedToken{}, special: map[string]bool{},
		decoded: map[int64]string{}}
	next := int64(len(model.vocab))
	for _, t := range list {
		if t.Content == "" {
			continue
		}
		id, known := a.ids[t.Content]
		if !known {
			if m, ok := model.vocab[t.Content]; ok {
				id = int64(m)
			} else {
				id = next
				next++
				a.beyondModel++
			}
		}
		if t.Normalized && normalize != nil {
			if n := normalize(t.Content); n != t.Content {
				a.decoded[id] = n
			}
		}
		if t.Special {
			a.special[t.Content] = true
		}
		a.ids[t.Content], a.tokens[id] = id, t
	}
	return a, a.build()
}

// build makes the two matchers.
func (a *addedTokens) build() error {
	for _, id := range slices.Sorted(maps.Keys(a.tokens)) {
		t := a.tokens[id]
		m, pattern := &a.raw, t.Content
		if t.Normalized {
			m = &a.normalized
			if n, ok := a.decoded[id]; ok {
				pattern = n
			}
		}
		if pattern == "" {
			return fmt.Errorf("added token %q is empty when it is normalized", t.Content)
		}
		if other, ok := m.add(pattern, id, t); ok {
			return fmt.Errorf("added tokens %q and %q are the same text %q when they are normalized",
				a.tokens[other].Content, t.Content, pattern)
		}
	}
	return nil
}

// section is a part of a text: an added token, or text between such.
type section struct {
	text  string
	id    int64
	token bool
}

// matcher finds added tokens: from the left, the longest one at each place, as an Aho-Corasick automaton with
// leftmost-longest matches does.
type matcher struct {
	nodes []trieNode
	by    map[int64]addedToken
}

type trieNode struct {
	next map[byte]int
	id   int64
	ends bool
}

// add puts a pattern in; when it is there already it returns the id that has it.
func (m *matcher) add(pattern string, id int64, t addedToken) (int64, bool) {
	if m.nodes == nil {
		m.nodes, m.by = []trieNode{{}}, map[int64]addedToken{}
	}
	at := 0
	for i := range len(pattern) {
		n, ok := m.nodes[at].next[pattern[i]]
		if !ok {
			n = len(m.nodes)
			m.nodes = append(m.nodes, trieNode{})
			if m.nodes[at].next == nil {
				m.nodes[at].next = map[byte]int{}
			}
			m.nodes[at].next[pattern[i]] = n
		}
		at = n
	}
	if m.nodes[at].ends {
		return m.nodes[at].id, true
	}
	m.nodes[at].id, m.nodes[at].ends, m.by[id] = id, true, t
	return 0, false
}

// longest returns the id and length of the longest pattern that text starts with.
func (m *matcher) longest(text string) (id int64, length int) {
	at := 0
	for i := range len(text) {
		n, ok := m.nodes[at].next[text[i]]
		if !ok {
			break
		}
		if at = n; m.nodes[at].ends {
			id, length = m.nodes[at].id, i+1
		}
	}
	return id, length
}

// split cuts text into added tokens and what is between them (AddedVocabulary::find_matches of tokenizers). A token
// that strips white space takes it in; a single word that is not one stays text.
func (m *matcher) split(text string) []section {
	if m.nodes == nil || text == "" {
		return []section{{text: text}}
	}
	var out []section
	done := 0
	for at := 0; at < len(text); {
		id, n := m.longest(text[at:])
		if n == 0 {
			at++
			continue
		}
		start, stop := at, at+n
		at = stop
		t := m.by[id]
		if t.SingleWord && (wordBefore(text[:start]) || wordAfter(text[stop:])) {
			continue
		}
		if t.LStrip {
			start = max(spaceBefore(text[:start]), done)
		}
		if t.RStrip {
			stop += spaceAfter(text[stop:])
		}
		if done < start {
			out = append(out, section{text: text[done:start]})
		}
		if start < stop { // else the white space that the token before stripped holds all of it
			out = append(out, section{id: id, token: true})
			done = stop
		}
	}
	if done < len(text) {
		out = append(out, section{text: text[done:]})
	}
	return out
}

func wordBefore(text string) bool {
	r, n := utf8.DecodeLastRuneInString(text)
	return n > 0 && isWord(r)
}

func wordAfter(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	return n > 0 && isWord(r)
}

// spaceBefore returns where the white space at the end of text begins.
func spaceBefore(text string) int {
	for text != "" {
		r, n := utf8.DecodeLastRuneInString(text)
		if !unicode.Is(unicode.White_Space, r) {
			break
		}
		text = text[:len(text)-n]
	}
	return len(text)
}

// spaceAfter returns where the white space at the start of text ends.
func spaceAfter(text string) int {
	for i, r := range text {
		if !unicode.Is(unicode.White_Space, r) {
			return i
		}
	}
	return len(text)
}

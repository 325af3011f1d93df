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
	decoded         map[int64]string // the decoder's text, if normalizing changed the content
	raw, normalized matcher          // tokens matched before and after normalization
	beyondModel     int              // the number of tokens that are not in the model's vocabulary
}

// newAddedTokens numbers the tokens as tokenizers does. Tokens in the model's vocabulary keep their ids; the others
// follow it in file order, whatever ids the file has for them.
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

// build builds the two matchers.
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
			return fmt.Errorf("added tokens %q and %q become the same text %q when they are normalized",
				a.tokens[other].Content, t.Content, pattern)
		}
	}
	return nil
}

// section is a part of a text: an added token, or the text between two.
type section struct {
	text  string
	id    int64
	token bool
}

// matcher finds added tokens from the left, the longest one at each position, like an Aho-Corasick automaton with
// leftmost-longest matches.
type matcher struct {
	nodes []trieNode
	by    map[int64]addedToken
}

type trieNode struct {
	next map[byte]int
	id   int64
	ends bool
}

// add adds a pattern. If the pattern exists it returns its id instead.
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

// split splits text into added tokens and the text between them (AddedVocabulary::find_matches of tokenizers). A token
// that strips white space includes it. A single-word token inside a word stays text.
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
		if start < stop { // else the previous token stripped all of it
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

// spaceBefore returns the start of the white space at the end of text.
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

// spaceAfter returns the end of the white space at the start of text.
func spaceAfter(text string) int {
	for i, r := range text {
		if !unicode.Is(unicode.White_Space, r) {
			return i
		}
	}
	return len(text)
}
